"""The routes of the scheduler's HTTPS server, with public health checks.

All other paths need authorization by the cluster.

Source: the healthz handlers of apiserver's server/healthz, for `verbose`, `exclude` and one path for each check.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from batchsched.config.schema import CONFIG_API_VERSION, BatchSchedulerConfiguration, HttpsServerSettings
from batchsched.observability.activity_recorder import ActivityRecorder
from batchsched.observability.collector import MetricsCollector
from batchsched.observability.http.access import DelegatedAccess
from batchsched.observability.http.debug import DebugHandlers
from batchsched.observability.http.server import (
    CertificateFiles,
    HttpServer,
    tls_context_from_files,
)
from batchsched.observability.http.status_page import StatusPage
from batchsched.observability.logs import log_info
from batchsched.scheduler.app import SchedulerApp

_LOG: Final = logging.getLogger(__name__)
Check = Callable[[], str]
"""Returns the problem, "" if there is none.

The paths need no authorization, so the text may contain names of kinds only.
"""


def ping() -> str:
    """Return "", which means no problem: the health check `ping` passes whenever the process answers."""
    return ""


def health_check_routes(name: str, checks: Mapping[str, Check]) -> list[web.RouteDef]:
    """Return the HTTP routes of health checks: `/NAME` runs all checks, and `/NAME/CHECK` runs one of them."""

    async def handle_all_checks(request: web.Request) -> web.Response:
        return _answer(name, checks, request)

    async def handle_single_health_check(request: web.Request) -> web.Response:
        check = request.match_info["check"]
        if check not in checks:
            return web.Response(status=404, text=f"there is no check {check!r}\n")
        return _answer(f"{name}/{check}", {check: checks[check]}, request)

    return [web.get(f"/{name}", handle_all_checks), web.get(f"/{name}/{{check}}", handle_single_health_check)]


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
        log_info(_LOG, 2, "Health check failed", check=name, problems=failed)
        return web.Response(status=500, text="\n".join([*lines, f"{name} check failed", ""]))
    if "verbose" not in request.query:
        return web.Response(text="ok")
    return web.Response(text="\n".join([*lines, f"{name} check passed", ""]))


Configuration = Callable[[], BatchSchedulerConfiguration]


def configured_certificate_files(serving: HttpsServerSettings) -> CertificateFiles | None:
    """Return the certificate and key files in the configuration, or None to use a self-signed certificate."""
    if not serving.tls_cert_file:
        return None
    return CertificateFiles(Path(serving.tls_cert_file), Path(serving.tls_private_key_file))


def build_server(
    service: SchedulerApp,
    observation: ActivityRecorder,
    serving: HttpsServerSettings,
    configuration: Configuration,
) -> HttpServer:
    """Return the HTTPS server of a scheduler, not yet started.

    Raises:
      CommandError: The certificate cannot be used.
    """
    pair = configured_certificate_files(serving)
    if pair is None:
        from batchsched.observability.http.self_signed_certificate import self_signed_tls_context

        tls = self_signed_tls_context(serving.bind_address, service.clock.now())
    else:
        tls = tls_context_from_files(pair)
    access = DelegatedAccess(
        service.connection, service.clock, lambda: configuration().serving.authorization_always_allow_paths
    )
    routes = SchedulerHandlers(service, observation, configuration).http_routes()
    return HttpServer(access, routes, serving.bind_address, serving.secure_port, tls)


class SchedulerHandlers:
    """HTTP handlers for health, metrics, configuration, the status page and /debug.

    Args:
      service: The scheduler.
      observation: The metrics and recent sessions of the scheduler.
      configuration: Returns the configuration in force.
    """

    def __init__(
        self, service: SchedulerApp, observation: ActivityRecorder, configuration: Configuration
    ) -> None:
        self._service = service
        self._observation = observation
        self._configuration = configuration
        self._gauges = MetricsCollector(observation.metrics, service.cache, service.reflectors)

    def http_routes(self) -> list[web.RouteDef]:
        """Return all HTTP routes of the scheduler's server."""
        alive = {"ping": ping}
        return [
            *health_check_routes("healthz", alive),
            *health_check_routes("livez", alive),
            *health_check_routes("readyz", {**alive, "informer-sync": self._unsynced}),
            web.get("/", StatusPage(self._service, self._observation).handle_request),
            web.get("/metrics", self._metrics),
            web.get("/configz", self._configz),
            *DebugHandlers(self._service, self._observation.sessions).http_routes(),
        ]

    def _unsynced(self) -> str:
        needed = [
            reflector
            for reflector in self._service.reflectors
            if reflector.is_required_for_sessions or not reflector.synced.is_set()
        ]
        forbidden = [reflector.resource.full_name for reflector in needed if reflector.forbidden]
        missing = [
            reflector.resource.full_name
            for reflector in needed
            if not reflector.forbidden and not reflector.synced.is_set()
        ]
        problems = {"no right to list and watch": forbidden, "not yet listed": missing}
        return "; ".join(f"{problem} {', '.join(names)}" for problem, names in problems.items() if names)

    async def _metrics(self, request: web.Request) -> web.Response:
        body = await self._observation.update_and_export_metrics(self._service, self._gauges)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _configz(self, request: web.Request) -> web.Response:
        configuration = self._configuration().model_dump(mode="json", by_alias=True)
        body = msgspec.json.encode({CONFIG_API_VERSION.partition("/")[0]: configuration})
        return web.Response(body=body, content_type="application/json")
