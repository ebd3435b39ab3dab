"""Records the responses of extenders and the exceeded plugin deadlines of a session, and replays them."""

import hashlib
from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec
from typing_extensions import override

from batchsched.framework.runtime.deadline import CountingPluginRunner
from batchsched.ports.external import (
    ExceededDeadline,
    ExtenderEndpoint,
    ExtenderReply,
    Extenders,
    ExternalClients,
)

NOT_RECORDED: Final = "the recorded session did not ask this"


class ExtenderCall(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A recorded request to an extender, with its response.

    Args:
      url, verb: The endpoint.
      question: The SHA-256 digest of the request body.
      reply: The response, or the error of the request.
    """

    url: str
    verb: str
    question: str
    reply: ExtenderReply


class ExternalAnswers(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The recorded results of a session's external calls: responses of extenders, and exceeded deadlines.

    Args:
      extenders: Requests to extenders, in the order in which they were sent.
      overdue: Plugin calls that exceeded their deadline, in this session or earlier ones.
    """

    extenders: tuple[ExtenderCall, ...] = ()
    overdue: tuple[ExceededDeadline, ...] = ()

    def create_replay_clients(self) -> ExternalClients:
        """Return clients that give a replay the recorded answers instead of calling extenders.

        No extender is called, and no clock is read.
        """
        return ExternalClients(RecordingExtenderClient(self.extenders), CountingPluginRunner(self.overdue))


NO_ANSWERS: Final = ExternalAnswers()


class RecordingExtenderClient(Extenders):
    """A client of extenders that records each request with its response, and can replay an earlier recording.

    Args:
      recorded: The earlier recording.
      port: The real extenders, called for requests that the recording lacks; None: such requests fail.
    """

    def __init__(self, recorded: Iterable[ExtenderCall] = (), port: Extenders | None = None) -> None:
        self._port = port
        self.restart_recording(recorded)

    def restart_recording(self, recorded: Iterable[ExtenderCall] = ()) -> None:
        """Start a new recording, in which requests are answered from the given earlier recording."""
        self._recorded: dict[tuple[str, str, str], deque[ExtenderReply]] = {}
        for call in recorded:
            self._recorded.setdefault((call.url, call.verb, call.question), deque()).append(call.reply)
        self._calls: list[ExtenderCall] = []

    @property
    def calls(self) -> tuple[ExtenderCall, ...]:
        """The requests in the present recording, with their responses."""
        return tuple(self._calls)

    @override
    def send_request(self, endpoint: ExtenderEndpoint, verb: str, question: bytes) -> ExtenderReply:
        key = (endpoint.url, verb, hashlib.sha256(question).hexdigest())
        recorded = self._recorded.get(key)
        if recorded:
            reply = recorded.popleft()
        elif self._port is not None:
            reply = self._port.send_request(endpoint, verb, question)
        else:
            reply = ExtenderReply(fault=NOT_RECORDED)
        self._calls.append(ExtenderCall(*key, reply))
        return reply

    @override
    async def send_bind_request(
        self, endpoint: ExtenderEndpoint, verb: str, question: bytes
    ) -> ExtenderReply:
        """Send a Bind request to an extender, without recording it.

        The request belongs to the binding and not to the decision.
        """
        if self._port is None:
            return ExtenderReply(fault=NOT_RECORDED)
        return await self._port.send_bind_request(endpoint, verb, question)
