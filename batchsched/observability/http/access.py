"""Who may see what: tokens are reviewed by the API server, and so is whether their users may read a path.

Source: the delegated authentication and authorisation of kube-scheduler (apiserver's DelegatingAuthenticationOptions
and DelegatingAuthorizationOptions): answers are kept for ten seconds, and whoever shows no token is anonymous.
"""

import base64
import hashlib
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web

from batchsched.errors import ApiError, Unreachable
from batchsched.kube.connection import Connection
from batchsched.kube.resources import Resource
from batchsched.ports.clock import Clock

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
REVIEWS: Final = Resource("authentication.k8s.io/v1", "tokenreviews", "TokenReview", namespaced=False)
ACCESS: Final = Resource(
    "authorization.k8s.io/v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
KEPT: Final = 10.0
"""Seconds for which an answer of the API server holds."""
_MOST: Final = 1024
"""Answers that are kept: whoever asks with ever new tokens is not to fill our memory."""


class User(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody, as the API server knows them."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


ANONYMOUS: Final = User("system:anonymous", groups=("system:unauthenticated",))


class _Reviewed(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: User = User()


class _Review(msgspec.Struct, frozen=True):
    status: _Reviewed = _Reviewed()


class _Judged(msgspec.Struct, frozen=True):
    allowed: bool = False
    reason: str = ""


class _Judgement(msgspec.Struct, frozen=True):
    status: _Judged = _Judged()


class Access:
    """Asks the API server who somebody is, and whether they may.

    Args:
      connection: to the API server; whoever stands behind it may create TokenReviews and SubjectAccessReviews.
      clock: tells time.
      allowed: returns the paths that everybody may read, and all below those that end in a star, as of now.
    """

    def __init__(self, connection: Connection, clock: Clock, allowed: Callable[[], tuple[str, ...]]) -> None:
        self._connection = connection
        self._clock = clock
        self._allowed = allowed
        self._kept: dict[Hashable, tuple[float, Any]] = {}

    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request pass, or refuse it as the API server would."""
        path, verb = request.path, request.method.lower()
        if any(_covers(one, path) for one in self._allowed()):
            return await handler(request)
        try:
            user = await self.user(request.headers.get("Authorization", ""))
            if user is None:
                return _refusal(401, "Unauthorized", "Unauthorized")
            judged = await self._may(user, verb, path)
        except (ApiError, Unreachable, msgspec.DecodeError) as error:
            return _refusal(500, "InternalError", f"the API server did not say who may: {error}")
        if not judged.allowed and user == ANONYMOUS and "text/html" in request.headers.get("Accept", ""):
            # A browser shows no bearer token of its own; asked like this it asks its user for one.
            return asked()
        if not judged.allowed:
            why = f": {judged.reason}" if judged.reason else ""
            return _refusal(
                403, "Forbidden", f'forbidden: User "{user.username}" cannot {verb} path "{path}"{why}'
            )
        return await handler(request)

    async def user(self, authorization: str) -> User | None:
        """Return whose token it is, a bearer's or the password of somebody at a browser; None: nobody's.

        Raises:
          ApiError, Unreachable: the API server did not say.
        """
        if not authorization:
            return ANONYMOUS
        token = shown(authorization)
        if not token:
            return None
        digest = hashlib.sha256(token.encode()).digest()  # no token is kept
        reviewed = await self._asked(("token", digest), REVIEWS, {"token": token}, _Review)
        return reviewed.status.user if reviewed.status.authenticated else None

    async def _may(self, user: User, verb: str, path: str) -> _Judged:
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        key = ("access", msgspec.json.encode(spec, order="sorted"))
        return (await self._asked(key, ACCESS, spec, _Judgement)).status

    async def _asked(self, key: Hashable, resource: Resource, spec: Any, kind: type[T]) -> T:
        now = self._clock.monotonic()
        until, known = self._kept.get(key, (0.0, None))
        if now < until:
            found: T = known
            return found
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        raw = await self._connection.request("POST", resource.path(), body=msgspec.json.encode(body))
        answer = msgspec.json.decode(raw, type=kind)
        if len(self._kept) >= _MOST:
            self._kept.clear()
        self._kept[key] = (now + KEPT, answer)
        return answer


def _covers(allowed: str, path: str) -> bool:
    return path.startswith(allowed[:-1]) if allowed.endswith("*") else path == allowed


def asked() -> web.Response:
    """Return the answer upon which a browser asks its user for a token."""
    refusal = _refusal(401, "Unauthorized", "Unauthorized: give a token as the password")
    refusal.headers["WWW-Authenticate"] = 'Basic realm="batchsched: a token as the password"'
    return refusal


def shown(authorization: str) -> str:
    """Return the token of a header: a bearer's, or the password of somebody at a browser; "": there is none."""
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() == "basic":
        return _password(token.strip())
    return token.strip() if scheme.lower() == "bearer" else ""


def _password(credentials: str) -> str:
    """Return the password of HTTP's basic authentication, "" where there is none."""
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def _refusal(code: int, reason: str, message: str) -> web.Response:
    """Return a Status object, which is how clients of Kubernetes expect to be refused."""
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
