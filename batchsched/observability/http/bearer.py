"""Who may see what where no cluster says so: whoever has the one token that the operator chose."""

import hashlib
import hmac
from pathlib import Path

from aiohttp import web

from batchsched.errors import UnusableInput
from batchsched.observability.http.access import Handler, asked, shown


class Bearer:
    """Lets in whoever shows a token, as a bearer or as the password of a browser.

    Args:
      token: to be shown; None: everybody may come in.
    """

    def __init__(self, token: str | None) -> None:
        self._digest = None if token is None else _digest(token)

    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request pass, or refuse it; what is refused is not even told whether there is such a page."""
        if self._digest is None:
            return await handler(request)
        token = shown(request.headers.get("Authorization", ""))
        # Digests have one length, and comparing them takes the same time wherever they differ.
        if not hmac.compare_digest(_digest(token), self._digest):
            return asked()
        return await handler(request)


def read_token(path: Path) -> str:
    """Return the token that a file holds, without the space around it.

    Raises:
      UnusableInput: the file cannot be read, or holds none.
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
