"""The interfaces through which a session calls extenders, plugins with a deadline, and telemetry.

A session file records the answers of the first two.

The core writes the request to an extender and parses the response. An implementation of `Extenders` carries them, over
a network or from a recorded session. Timeouts and malformed responses are data too, so that a file can record them.

The core has no clock, so a package above it measures the time of plugin calls. A hanging plugin cannot be killed inside
the process. If a call exceeds its deadline, the session is abandoned and decided again, with that call marked as
overdue. Decisions repeat, so the same call occurs again. This time it is not made: its pod is refused, and the plugin
is not called again. A replay repeats the same steps.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

import msgspec

from batchsched.ports.workers import SolverWorkers


@dataclass(frozen=True, slots=True)
class ExtenderTlsSettings:
    """The TLS settings of calls to a scheduler extender. Fields `*_file` are paths, and `*_data` are PEM in base64."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: str = ""
    key_data: str = field(default="", repr=False)
    ca_data: str = ""


@dataclass(frozen=True, slots=True)
class ExtenderEndpoint:
    """The URL of a scheduler extender, with the timeout and the TLS settings for requests to this URL.

    Args:
      url: the prefix of the URL; the verb follows it.
      timeout_seconds: the longest time from the first byte of the request to the last byte of the response.
      https: use TLS. The certificate is checked only if the settings state certificate authorities.
      tls: the settings for a URL of the scheme https.
    """

    url: str
    timeout_seconds: float = 5.0
    https: bool = False
    tls: ExtenderTlsSettings = ExtenderTlsSettings()


class ExtenderReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The response of a scheduler extender, or the reason why there is no response.

    Args:
      body: the response body, "" without a response.
      fault: why there is no response, as a sentence; "" with a response.
    """

    body: str = ""
    fault: str = ""


class Extenders(Protocol):
    """An interface that sends requests to scheduler extenders.

    Implementations never raise: a failure is the `fault` of the reply.
    """

    def send_request(self, endpoint: ExtenderEndpoint, verb: str, question: bytes) -> ExtenderReply:
        """Send a JSON request to one verb of an extender, wait for the response, and return it."""
        ...

    async def send_bind_request(
        self, endpoint: ExtenderEndpoint, verb: str, question: bytes
    ) -> ExtenderReply:
        """Send the JSON request of a Bind call to an extender without blocking the event loop; return the response."""
        ...


class NoExtenders:
    """The implementation of `Extenders` that calls no extender. It is the default."""

    def send_request(self, endpoint: ExtenderEndpoint, verb: str, question: bytes) -> ExtenderReply:
        """Call no extender, and return a reply that says so in `fault`."""
        return ExtenderReply(fault=NOT_CALLED)

    async def send_bind_request(
        self, endpoint: ExtenderEndpoint, verb: str, question: bytes
    ) -> ExtenderReply:
        """Call no extender, and return a reply that says so in `fault`."""
        return ExtenderReply(fault=NOT_CALLED)


NOT_CALLED: Final = "extenders are not asked here"


T = TypeVar("T")


class ExceededDeadline(msgspec.Struct, frozen=True):
    """A plugin call that took longer than `pluginDeadlineSeconds` of the profile.

    Args:
      plugin: the name of the plugin.
      point: the extension point.
      call: the number of the call among all calls with a deadline in the session, from 1; 0: an earlier session.
      seconds: the deadline.
    """

    plugin: str
    point: str
    call: int
    seconds: float

    @property
    def message(self) -> str:
        """A text about the exceeded deadline, for refusals and for the list `setAside` of a decision."""
        return f"took longer than {self.seconds:g} s (pluginDeadlineSeconds); it is left out until the next start"


class PluginRunner(Protocol):
    """An interface that calls the plugins of other packages and enforces the deadline of each call."""

    def find_exceeded_deadline(self, plugin: str) -> ExceededDeadline | None:
        """Return the call in which a plugin exceeded its deadline, or None if all its calls were in time."""
        ...

    def call_within_deadline(self, plugin: str, point: str, call: Callable[[], T]) -> T:
        """Call a plugin within its deadline and return its result.

        Raises:
          PluginDeadlineExceeded: the call exceeded its deadline. Its result is discarded, and the plugin is not called
            again.
        """
        ...


class Telemetry(Protocol):
    """An interface that receives the durations and the progress of a session.

    An implementation cannot change a decision. It may end the session by an exception, as `ExplanationGate` does.
    """

    def stage_span(self, name: str) -> AbstractContextManager[None]:
        """Return a context manager that surrounds one stage of a session, to measure its duration.

        Stages may nest. An implementation that measures adds up the durations of equal names.
        """
        ...

    def gang_span(self, pod_group: str) -> AbstractContextManager[None]:
        """Return a context manager that surrounds a session's work for one gang, to measure its duration.

        An implementation that measures adds up the durations of one gang. Work for all gangs together, such as that of
        the solver, has no such context manager.

        Args:
          pod_group: `namespace/name` of the gang.
        """
        ...

    def on_progress(self, done: int, total: int, unit: str) -> None:
        """Receive the progress of a long stage: the number of steps that are done, and the total number."""
        ...

    def plugin_span(self, plugin: str, point: str) -> AbstractContextManager[None]:
        """Return a context manager that surrounds a call of a plugin, to measure its duration.

        Only a sample of the calls has such a context manager.
        """
        ...


_NOT_MEASURED: Final = nullcontext()


class NoTelemetry:
    """The implementation of `Telemetry` that records nothing. It is the default."""

    @contextmanager
    def stage_span(self, name: str) -> Iterator[None]:
        """Return a context manager that does nothing: `NoTelemetry` does not record the time of the stage."""
        yield

    def gang_span(self, pod_group: str) -> AbstractContextManager[None]:
        """Return a context manager that does nothing: `NoTelemetry` does not record the time for a gang."""
        return _NOT_MEASURED

    def on_progress(self, done: int, total: int, unit: str) -> None:
        """Do nothing: `NoTelemetry` does not record progress."""

    @contextmanager
    def plugin_span(self, plugin: str, point: str) -> Iterator[None]:
        """Return a context manager that does nothing: `NoTelemetry` does not record the time of the call."""
        yield


@dataclass(frozen=True, slots=True)
class ExternalClients:
    """The clients of a session for extenders, for plugins with a deadline, and for solver processes.

    Args:
      extenders: reaches extenders.
      deadline: calls plugins of other packages with a deadline. None: they are called without a deadline.
      workers: processes for the solver. None: the session's own process computes everything.
    """

    extenders: Extenders = field(default_factory=NoExtenders)
    deadline: PluginRunner | None = None
    workers: SolverWorkers | None = None


NO_EXTERNAL_CLIENTS = ExternalClients()
"""Calls no extender, and sets no deadline for plugins."""
