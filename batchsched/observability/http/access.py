"""Access control of the HTTPS server: by TokenReviews of the API server, or by one fixed token.

With a cluster, the API server reviews the token and the user's right to read a path. Answers are cached for 10 seconds;
a request without a token is anonymous. Without a cluster, `StaticTokenAccess` compares the token.

Source: the delegated authentication and authorization of kube-scheduler (apiserver's DelegatingAuthenticationOptions
and DelegatingAuthorizationOptions).
"""

import base64
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from batchsched.errors import ApiError, CommandError, Unreachable
from batchsched.kube.connection import ApiResource, Connection
from batchsched.ports.cluster import Clock

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
TOKEN_REVIEWS: Final = ApiResource(
    "authentication.k8s.io/v1", "tokenreviews", "TokenReview", namespaced=False
)
ACCESS_REVIEWS: Final = ApiResource(
    "authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
REVIEW_CACHE_SECONDS: Final = 10.0
"""Seconds for which an answer of the API server is cached."""
_MAX_CACHED_REVIEWS: Final = 1024
"""Maximum number of cached answers. The limit bounds the memory if a client sends a new token with each request."""


class AuthenticatedUser(msgspec.Struct, frozen=True, omit_defaults=True):
    """The user that sent an HTTP request, as the API server returns it in a TokenReview."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


ANONYMOUS: Final = AuthenticatedUser("system:anonymous", groups=("system:unauthenticated",))


class _Review(msgspec.Struct, frozen=True):
    """A cached answer of the API server to a TokenReview or a SubjectAccessReview."""

    status: dict[str, Any] = {}


class DelegatedAccess:
    """Access control that authenticates and authorizes HTTP requests by TokenReview and SubjectAccessReview.

    Args:
      connection: The API server; its user must be allowed to create both kinds of review.
      clock: The clock, for the age of cached answers.
      allowed: Returns the paths that need no authorization. A path that ends in `*` stands for all paths with this
        prefix.
    """

    def __init__(self, connection: Connection, clock: Clock, allowed: Callable[[], tuple[str, ...]]) -> None:
        self._connection = connection
        self._clock = clock
        self._allowed = allowed
        self._kept: dict[Hashable, tuple[float, Mapping[str, Any]]] = {}

    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Pass a request to its handler if it is allowed; otherwise return an error like the API server's."""
        path, verb = request.path, request.method.lower()
        if any(_covers(pattern, path) for pattern in self._allowed()):
            return await handler(request)
        try:
            user = await self.authenticate(request.headers.get("Authorization", ""))
            if user is None:
                return _refusal(401, "Unauthorized", "Unauthorized")
            review = await self._access_review(user, verb, path)
        except (ApiError, Unreachable, msgspec.DecodeError) as error:
            return _refusal(500, "InternalError", f"authorization by the API server failed: {error}")
        allowed = review.get("allowed") is True
        if not allowed and user == ANONYMOUS and "text/html" in request.headers.get("Accept", ""):
            # A browser sends no bearer token. With this answer it prompts for credentials.
            return basic_auth_challenge_response()
        if not allowed:
            detail = f": {review['reason']}" if review.get("reason") else ""
            return _refusal(
                403, "Forbidden", f'forbidden: User "{user.username}" cannot {verb} path "{path}"{detail}'
            )
        return await handler(request)

    async def authenticate(self, authorization: str) -> AuthenticatedUser | None:
        """Return the user of an Authorization header, or None if its token is not valid.

        The token is a bearer token or the password of basic authentication. Without a header the user is anonymous.

        Raises:
          ApiError, Unreachable: The review failed.
        """
        if not authorization:
            return ANONYMOUS
        token = token_of_authorization_header(authorization)
        # The API server issues ASCII tokens only, and no review can carry other bytes.
        if not token.isascii() or not token:
            return None
        digest = hashlib.sha256(token.encode()).digest()  # tokens are secret: the cache keeps digests only
        review = await self._cached_review(("token", digest), TOKEN_REVIEWS, {"token": token})
        return (
            msgspec.convert(review.get("user", {}), AuthenticatedUser)
            if review.get("authenticated") is True
            else None
        )

    async def _access_review(self, user: AuthenticatedUser, verb: str, path: str) -> Mapping[str, Any]:
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        key = ("access", msgspec.json.encode(spec, order="sorted"))
        return await self._cached_review(key, ACCESS_REVIEWS, spec)

    async def _cached_review(self, key: Hashable, resource: ApiResource, spec: Any) -> Mapping[str, Any]:
        """Return the status of a TokenReview or SubjectAccessReview, from the cache if it is recent."""
        now = self._clock.monotonic()
        until, cached = self._kept.get(key, (0.0, {}))
        if now < until:
            return cached
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        raw = await self._connection.request("POST", resource.path(), body=msgspec.json.encode(body))
        answer = msgspec.json.decode(raw, type=_Review).status
        if len(self._kept) >= _MAX_CACHED_REVIEWS:
            self._kept.clear()
        self._kept[key] = (now + REVIEW_CACHE_SECONDS, answer)
        return answer


def _covers(allowed: str, path: str) -> bool:
    return path.startswith(allowed[:-1]) if allowed.endswith("*") else path == allowed


def basic_auth_challenge_response() -> web.Response:
    """Return the HTTP response 401 that makes a browser prompt for credentials."""
    refusal = _refusal(401, "Unauthorized", "Unauthorized: give a token as the password")
    refusal.headers["WWW-Authenticate"] = 'Basic realm="batchsched: a token as the password"'
    return refusal


def token_of_authorization_header(authorization: str) -> str:
    """Return the token in an Authorization header: a bearer token, or the password of basic authentication.

    Return "" if the header has neither.
    """
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() == "basic":
        return _password(token.strip())
    return token.strip() if scheme.lower() == "bearer" else ""


def _password(credentials: str) -> str:
    """Return the password of a basic authentication header, "" if it cannot be decoded."""
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def _refusal(code: int, reason: str, message: str) -> web.Response:
    """Return the response that refuses a request: a Status object, as Kubernetes clients expect it."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return web.json_response(status, status=code)


class StaticTokenAccess:
    """Access control that requires one fixed token, as a bearer token or as the password of basic authentication.

    Args:
      token: The token; None allows every request.
    """

    def __init__(self, token: str | None) -> None:
        self._digest = None if token is None else _digest(token)

    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Pass a request with the right token to its handler, and answer all other requests with 401.

        The answer does not reveal whether the path exists.
        """
        if self._digest is None:
            return await handler(request)
        token = token_of_authorization_header(request.headers.get("Authorization", ""))
        # Digests have the same length, and compare_digest takes constant time: the answer time reveals nothing.
        if not hmac.compare_digest(_digest(token), self._digest):
            return basic_auth_challenge_response()
        return await handler(request)


def read_token(path: Path) -> str:
    """Read an access token from a file, without surrounding white space.

    Raises:
      CommandError: The file cannot be read, or is empty.
    """
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise CommandError(
            f"{path} cannot be read as a token: {reason}; expected one line of text"
        ) from error
    if not token:
        raise CommandError(f"{path} holds no token; expected one line of text")
    return token


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
