"""Breakage, as one hierarchy. A refusal is a value; what stands here is raised.

Every error carries its evidence as attributes and says in its message what was wrong, what was expected and
what to do. Errors know no other part of batchsched.
"""

from typing_extensions import override


class BatchschedError(Exception):
    """The root: whatever batchsched raises on purpose."""


class InvalidInput(BatchschedError):
    """An object, a file or a setting that cannot be used.

    Args:
      message: what was wrong, what was expected, what to do.
      file: where it stands, "" when it came from no file.
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
        """Name the file, the object and the field before the message."""
        place = ": ".join(part for part in (self.file, self.object, self.field) if part)
        return f"{place}: {self.message}" if place else self.message


class InvalidQuantity(InvalidInput):
    """A text that is no Kubernetes quantity, or one out of range."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(f"{text!r} is not a usable quantity: {problem}")
        self.text = text


class InvalidSelector(InvalidInput):
    """A label or node selector with an operator or value that means nothing."""


class UnusableInput(BatchschedError):
    """Nothing in the input can be used: exit code 1."""


class PluginError(BatchschedError):
    """A plugin broke: it raised, or answered nonsense. Its pod fails, nothing else does."""

    kind = "plugin"

    def __init__(self, plugin: str, point: str, problem: str) -> None:
        super().__init__(f"{self.kind} {plugin} failed in {point}: {problem}")
        self.plugin = plugin
        self.point = point
        self.problem = problem


class PluginOverdue(PluginError):
    """A plugin did not answer in time. Its pod fails, and it is asked no more."""


class ExtenderError(PluginError):
    """An extender that may not be ignored gave no answer, or one that makes no sense. Its pod fails."""

    kind = "extender"


class IllegalMove(BatchschedError):
    """A move that the state table of a gang does not have; nothing was changed."""


class RecordTampered(BatchschedError):
    """A session file whose content does not match its own digest."""


class SolverFault(BatchschedError):
    """A model that the solver does not accept: a defect of the formulation, never of the input."""


class ApiError(BatchschedError):
    """The API server refused a request.

    Args:
      status: the HTTP status.
      reason: the reason of the Status object, such as `Conflict`; "" where there is none.
      message: what it said.
      retry_after: seconds that it asks us to wait, 0 for none.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class Unreachable(BatchschedError):
    """A request without an answer: no connection, a deadline that passed, an answer cut short.

    The server may have carried it out.
    """


class BindFailed(BatchschedError):
    """A pod that is not bound to the node it was to go to, and why."""


class NotLeading(BatchschedError):
    """A write that was not sent: somebody else may be the leader by now."""
