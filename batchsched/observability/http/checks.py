"""Health: named checks behind /healthz, /livez and /readyz, told as the components of Kubernetes tell them.

Source: the healthz handlers of apiserver's server/healthz, for `verbose`, `exclude` and a check of its own path.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web

from batchsched.observability.logs import say

_LOG: Final = logging.getLogger(__name__)
Check = Callable[[], str]
"""Says what is wrong, "" for nothing. Everybody may ask: names of kinds are all that it may tell."""


def ping() -> str:
    """Find nothing wrong: whoever answers is there."""
    return ""


def routes(name: str, checks: Mapping[str, Check]) -> list[web.RouteDef]:
    """Return /name over all checks, and /name/CHECK over one."""

    async def whole(request: web.Request) -> web.Response:
        return _answer(name, checks, request)

    async def one(request: web.Request) -> web.Response:
        found = request.match_info["check"]
        if found not in checks:
            return web.Response(status=404, text=f"there is no check {found!r}\n")
        return _answer(f"{name}/{found}", {found: checks[found]}, request)

    return [web.get(f"/{name}", whole), web.get(f"/{name}/{{check}}", one)]


def _answer(name: str, checks: Mapping[str, Check], request: web.Request) -> web.Response:
    excluded = set(request.query.getall("exclude", []))
    lines, failed = [], []
    for check, ask in checks.items():
        if check in excluded:
            lines.append(f"[+]{check} excluded: ok")
            continue
        problem = ask()
        if problem:
            failed.append(f"{check}: {problem}")
            lines.append(f"[-]{check} failed: {problem}")
        else:
            lines.append(f"[+]{check} ok")
    unknown = sorted(excluded - checks.keys())
    if unknown:
        lines.append(f"warn: some health checks cannot be excluded: no matches for {', '.join(unknown)}")
    if failed:
        say(_LOG, 2, "A health check fails", check=name, problems=failed)
        return web.Response(status=500, text="\n".join([*lines, f"{name} check failed", ""]))
    if "verbose" not in request.query:
        return web.Response(text="ok")
    return web.Response(text="\n".join([*lines, f"{name} check passed", ""]))
