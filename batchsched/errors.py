"""The exceptions of batchsched, in one hierarchy. A refusal of a gang is a value and never one of them.

Every exception carries its evidence as attributes. Its message states what was wrong, what was expected and what
to do. This module imports no other part of batchsched.
"""

from typing_extensions import override


class BatchschedError(Exception):
    """The base class of all exceptions that batchsched defines and raises."""


class InvalidInput(BatchschedError):
    """An object, a file or a setting is invalid, so that batchsched cannot use it.

    Args:
      message: what was wrong, what was expected, what to do.
      file: the file that contains the object, "" if it came from no file.
      object: kind and name, such as "PodGroup team-a/bert", or "".
      field: the path inside the object, such as "spec.minMember", or "".
    """

    def __init__(self, message: str, *, file: str = "", object: str = "", field: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.object = object
        self.field = field

    @override
    def __str__(self) -> str:
        """Return the message, after the names of the file, the object and the field that are known."""
        place = ": ".join(part for part in (self.file, self.object, self.field) if part)
        return f"{place}: {self.message}" if place else self.message


class InvalidQuantity(InvalidInput):
    """A text is not a Kubernetes quantity, or the quantity is out of range."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(f"{text!r} is not a usable quantity: {problem}")
        self.text = text


class InvalidSelector(InvalidInput):
    """A label selector or node selector has an unknown operator or an invalid value."""


class CommandError(BatchschedError):
    """A command cannot start, because its input or something else that it needs, such as a port, is unusable.

    The exit code of the command is 1.
    """


class PluginError(BatchschedError):
    """A plugin raised an exception or returned an invalid answer. Only the pod for which it was called fails.

    Args:
      plugin: the name of the plugin.
      point: the extension point.
      problem: the exception, or what is wrong with the answer.
      place: file and line of an external plugin that raised the exception, "" if they are not known.
    """

    kind = "plugin"

    def __init__(self, plugin: str, point: str, problem: str, place: str = "") -> None:
        super().__init__(f"{self.kind} {plugin} failed in {point}: {problem}{f' ({place})' if place else ''}")
        self.plugin = plugin
        self.point = point
        self.problem = problem
        self.place = place


class PluginDeadlineExceeded(PluginError):
    """A call of a plugin exceeded its deadline. Its pod fails, and the plugin is not called again."""


class ExtenderError(PluginError):
    """A scheduler extender that is not `ignorable` returned no response or an invalid one. Its pod fails."""

    kind = "extender"


class PolicyError(BatchschedError):
    """A policy that another package or a file defines cannot be loaded, or it returned unusable sort keys.

    The message names the policy, its file or entry point, and what was expected.
    """


class IllegalStateChange(BatchschedError):
    """A gang, or its entry in the scheduling queue, cannot change from its present to the requested state.

    The gang or the entry keeps its present state.
    """


class DigestMismatch(BatchschedError):
    """The content of a session file does not match the digest in the file."""


class SolverFault(BatchschedError):
    """CP-SAT rejected a model as invalid: batchsched has built a wrong model.

    The cause is a defect of batchsched, never the input.
    """


class ApiError(BatchschedError):
    """The API server refused a request.

    Args:
      status: the HTTP status.
      reason: the reason of the Status object, such as `Conflict`; "" if the answer has none.
      message: the message of the Status object.
      retry_after: seconds of the header Retry-After, 0 without one.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class Unreachable(BatchschedError):
    """A request to the API server got no complete answer: the connection failed or a deadline expired.

    The API server may have executed the request.
    """


class BindFailed(BatchschedError):
    """The binding of a pod to its node failed. The message states the reason."""


class NotLeading(BatchschedError):
    """A write to the API server was not sent, because this replica may have lost the leader Lease."""
