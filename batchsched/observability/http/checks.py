"""Health checks behind /healthz, /livez and /readyz, in the format of the Kubernetes components.

Source: the healthz handlers of apiserver's server/healthz, for `verbose`, `exclude` and one path for each check.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web

from batchsched.observability.logs import log_event

_LOG: Final = logging.getLogger(__name__)
Check = Callable[[], str]
"""Returns the problem, "" if there is none.

The paths need no authorization, so the text may contain names of kinds only.
"""


def ping() -> str:
    """Report no problem: an answer is proof enough that the process serves requests."""
    return ""


def routes(name: str, checks: Mapping[str, Check]) -> list[web.RouteDef]:
    """Return the routes `/NAME`, which runs all checks, and `/NAME/CHECK`, which runs one."""

    async def all_checks(request: web.Request) -> web.Response:
        return _answer(name, checks, request)

    async def single_check(request: web.Request) -> web.Response:
        check = request.match_info["check"]
        if check not in checks:
            return web.Response(status=404, text=f"there is no check {check!r}\n")
        return _answer(f"{name}/{check}", {check: checks[check]}, request)

    return [web.get(f"/{name}", all_checks), web.get(f"/{name}/{{check}}", single_check)]


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
        log_event(_LOG, 2, "Health check failed", check=name, problems=failed)
        return web.Response(status=500, text="\n".join([*lines, f"{name} check failed", ""]))
    if "verbose" not in request.query:
        return web.Response(text="ok")
    return web.Response(text="\n".join([*lines, f"{name} check passed", ""]))
