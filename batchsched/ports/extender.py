"""What the core asks of extenders: one answer to one question, or the reason why none came.

The core writes the question and reads the answer; what stands between, a network or a recorded session, is the
shell's. So whatever an extender does, time-outs and garbage included, is data that a session file can hold.
"""

from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec


@dataclass(frozen=True, slots=True)
class Tls:
    """How TLS is spoken; files are paths, data is PEM in base64."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: str = ""
    key_data: str = field(default="", repr=False)
    ca_data: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an extender is.

    Args:
      url: what stands before each verb.
      timeout_seconds: how long an answer may take, from the first byte that is sent to the last that comes.
      https: TLS is spoken, and a certificate is checked only where authorities are stated.
      tls: used where the url is one of https.
    """

    url: str
    timeout_seconds: float = 5.0
    https: bool = False
    tls: Tls = Tls()


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of a question.

    Args:
      body: the answer as it came, "" where none did.
      fault: why there is none, in words; "" where there is one.
    """

    body: str = ""
    fault: str = ""


class Extenders(Protocol):
    """Reaches extenders. It never raises: what goes wrong is a fault in the reply."""

    def ask(self, endpoint: Endpoint, verb: str, question: bytes) -> Reply:
        """Put a question, JSON, to one verb of an extender, and wait for the answer."""
        ...

    async def put(self, endpoint: Endpoint, verb: str, question: bytes) -> Reply:
        """As `ask`, while others go on: for what is asked once a decision is carried out."""
        ...


class OutOfReach:
    """The shell that reaches no extender: the default below the shell."""

    def ask(self, endpoint: Endpoint, verb: str, question: bytes) -> Reply:
        """Say that nobody is asked."""
        return Reply(fault=NOT_ASKED)

    async def put(self, endpoint: Endpoint, verb: str, question: bytes) -> Reply:
        """Say that nobody is asked."""
        return Reply(fault=NOT_ASKED)


NOT_ASKED: Final = "extenders are not asked here"
