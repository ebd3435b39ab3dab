"""Access control without a cluster: one fixed token that the operator chose."""

import hashlib
import hmac
from pathlib import Path

from aiohttp import web

from batchsched.errors import UnusableInput
from batchsched.observability.http.access import Handler, login_prompt, token_of


class Bearer:
    """Middleware that requires one fixed token, as a bearer token or as the password of basic authentication.

    Args:
      token: The token; None allows every request.
    """

    def __init__(self, token: str | None) -> None:
        self._digest = None if token is None else _digest(token)

    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Pass a request on, or answer 401 whether or not the path exists."""
        if self._digest is None:
            return await handler(request)
        token = token_of(request.headers.get("Authorization", ""))
        # Digests have the same length, and compare_digest takes constant time: the answer time reveals nothing.
        if not hmac.compare_digest(_digest(token), self._digest):
            return login_prompt()
        return await handler(request)


def read_token(path: Path) -> str:
    """Return the token in a file, without surrounding white space.

    Raises:
      UnusableInput: The file cannot be read, or is empty.
    """
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableInput(f"{path} cannot be read as a token: {error}") from error
    if not token:
        raise UnusableInput(f"{path} holds no token; expected one line of text")
    return token


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
