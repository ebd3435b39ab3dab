"""What the world said while a session was decided: kept in its file, and fed back when it is decided again."""

import hashlib
from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec
from typing_extensions import override

from batchsched.framework.runtime.deadline import DeadlineKeeper
from batchsched.ports.extender import Endpoint, Extenders, Reply
from batchsched.ports.external import ExternalCalls
from batchsched.ports.plugin_deadline import DeadlineExceeded

NOT_RECORDED: Final = "the recorded session did not ask this"


class Asked(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A question to an extender, and what came of it.

    Args:
      url, verb: who was asked what.
      question: a digest of it.
      reply: the answer as it came, or the fault.
    """

    url: str
    verb: str
    question: str
    reply: Reply


class Answers(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """All that a session was told from outside.

    Args:
      extenders: in the order in which they were asked.
      overdue: calls of plugins that took too long, here or in sessions before.
    """

    extenders: tuple[Asked, ...] = ()
    overdue: tuple[DeadlineExceeded, ...] = ()

    def again(self) -> ExternalCalls:
        """Return a world that says it all again, and nothing else: nobody is asked, and no clock is read."""
        return ExternalCalls(Transcript(self.extenders), DeadlineKeeper(self.overdue))


NOTHING: Final = Answers()


class Transcript(Extenders):
    """Extenders as they were heard: what was said before is said again, the rest is asked and written down.

    Args:
      given: what was said before.
      port: is asked what was not; None: nobody is.
    """

    def __init__(self, given: Iterable[Asked] = (), port: Extenders | None = None) -> None:
        self._port = port
        self._given: dict[tuple[str, str, str], deque[Reply]] = {}
        for one in given:
            self._given.setdefault((one.url, one.verb, one.question), deque()).append(one.reply)
        self._asked: list[Asked] = []

    @property
    def asked(self) -> tuple[Asked, ...]:
        """All questions so far, with their answers."""
        return tuple(self._asked)

    @override
    def ask(self, endpoint: Endpoint, verb: str, question: bytes) -> Reply:
        key = (endpoint.url, verb, hashlib.sha256(question).hexdigest())
        said = self._given.get(key)
        if said:
            reply = said.popleft()
        elif self._port is not None:
            reply = self._port.ask(endpoint, verb, question)
        else:
            reply = Reply(fault=NOT_RECORDED)
        self._asked.append(Asked(*key, reply))
        return reply

    @override
    async def put(self, endpoint: Endpoint, verb: str, question: bytes) -> Reply:
        """What is asked once a decision is carried out is no part of it, and not recorded."""
        if self._port is None:
            return Reply(fault=NOT_RECORDED)
        return await self._port.put(endpoint, verb, question)
