"""The routes of the scheduler's server. Health checks are public; all other paths need authorization by the cluster."""

from collections.abc import Callable
from pathlib import Path

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from batchsched.config.schema import CONFIG_API_VERSION, BatchSchedulerConfiguration
from batchsched.config.serving import Serving
from batchsched.observability.collector import MetricsCollector
from batchsched.observability.http import checks, page
from batchsched.observability.http.access import Access
from batchsched.observability.http.certificate import KeyPair, operator_context, self_signed_context
from batchsched.observability.http.debug import DebugHandlers
from batchsched.observability.http.server import Server
from batchsched.observability.observer import Observer
from batchsched.scheduler.app import SchedulerApp

Configuration = Callable[[], BatchSchedulerConfiguration]


def key_pair(serving: Serving) -> KeyPair | None:
    """Return the files of the operator's certificate, None to serve a self-signed one."""
    if not serving.tls_cert_file:
        return None
    return KeyPair(Path(serving.tls_cert_file), Path(serving.tls_private_key_file))


def server(
    service: SchedulerApp, observation: Observer, serving: Serving, configuration: Configuration
) -> Server:
    """Return the server of a scheduler, not yet started.

    Raises:
      UnusableInput: The certificate cannot be used.
    """
    pair = key_pair(serving)
    tls = (
        self_signed_context(serving.bind_address, service.clock.now())
        if pair is None
        else operator_context(pair)
    )
    access = Access(
        service.connection, service.clock, lambda: configuration().serving.authorization_always_allow_paths
    )
    routes = Site(service, observation, configuration).routes()
    return Server(access, routes, serving.bind_address, serving.secure_port, tls)


class Site:
    """Handlers for health, metrics, configuration, the status page and /debug.

    Args:
      service: The scheduler.
      observation: The metrics and recent sessions of the scheduler.
      configuration: Returns the configuration in force.
    """

    def __init__(self, service: SchedulerApp, observation: Observer, configuration: Configuration) -> None:
        self._service = service
        self._observation = observation
        self._configuration = configuration
        self._gauges = MetricsCollector(observation.metrics, service.cache, service.reflectors)

    def routes(self) -> list[web.RouteDef]:
        """Return all routes."""
        alive = {"ping": checks.ping}
        return [
            *checks.routes("healthz", alive),
            *checks.routes("livez", alive),
            *checks.routes("readyz", {**alive, "informer-sync": self._unsynced}),
            web.get(page.PATH, page.StatusPage(self._service, self._observation).answer),
            web.get("/metrics", self._metrics),
            web.get("/configz", self._configz),
            *DebugHandlers(self._service, self._observation.sessions).routes(),
        ]

    def _unsynced(self) -> str:
        needed = [
            reflector
            for reflector in self._service.reflectors
            if reflector.needed or not reflector.synced.is_set()
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
        body = await self._observation.text(self._service, self._gauges)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _configz(self, request: web.Request) -> web.Response:
        configuration = self._configuration().model_dump(mode="json", by_alias=True)
        body = msgspec.json.encode({CONFIG_API_VERSION.partition("/")[0]: configuration})
        return web.Response(body=body, content_type="application/json")
