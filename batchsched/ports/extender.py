"""Calls of extenders: a request body out, a response body or the reason of the failure back.

The core writes the request and parses the response. An implementation of `Extenders` carries them, over a network or
from a recorded session. Timeouts and malformed responses are data too, so that a session file can record them.
"""

from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec


@dataclass(frozen=True, slots=True)
class Tls:
    """The TLS settings of a connection. Fields `*_file` are paths; fields `*_data` are PEM in base64."""

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
    """The address of an extender.

    Args:
      url: the prefix of the URL; the verb follows it.
      timeout_seconds: the longest time from the first byte of the request to the last byte of the response.
      https: use TLS. The certificate is checked only if the settings state certificate authorities.
      tls: the settings for a URL of the scheme https.
    """

    url: str
    timeout_seconds: float = 5.0
    https: bool = False
    tls: Tls = Tls()


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a call.

    Args:
      body: the response body, "" without a response.
      fault: why there is no response, as a sentence; "" with a response.
    """

    body: str = ""
    fault: str = ""


class Extenders(Protocol):
    """Calls extenders. Implementations never raise: a failure is the `fault` of the reply."""

    def ask(self, endpoint: Endpoint, verb: str, question: bytes) -> Reply:
        """Send a request in JSON to one verb of an extender and block until the response arrives."""
        ...

    async def put(self, endpoint: Endpoint, verb: str, question: bytes) -> Reply:
        """Send a request without blocking the event loop. Binding cycles use it."""
        ...


class OutOfReach:
    """The default implementation, which calls no extender."""

    def ask(self, endpoint: Endpoint, verb: str, question: bytes) -> Reply:
        """Return a fault without a call."""
        return Reply(fault=NOT_ASKED)

    async def put(self, endpoint: Endpoint, verb: str, question: bytes) -> Reply:
        """Return a fault without a call."""
        return Reply(fault=NOT_ASKED)


NOT_ASKED: Final = "extenders are not asked here"
