"""Tasks that run next to the scheduler: the HTTP server, the reload of the configuration and of the certificate."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from batchsched.config.schema import BatchSchedulerConfiguration
from batchsched.observability.http.server import reload_on_change
from batchsched.observability.http.site import build_server, key_pair
from batchsched.observability.observer import Observer
from batchsched.scheduler.app import SchedulerApp
from batchsched.service.reload import ConfigReload


@dataclass(frozen=True, slots=True)
class BackgroundTasks:
    """Starts and stops the background tasks of a scheduler.

    Args:
      observation: The metrics and recorded sessions.
      configuration: The configuration at the start.
      file: The configuration file, None for the defaults.
    """

    observation: Observer
    configuration: BatchSchedulerConfiguration
    file: Path | None

    @asynccontextmanager
    async def beside(self, service: SchedulerApp) -> AsyncIterator[None]:
        """Run the tasks for as long as the context is open.

        Raises:
          UnusableInput: The port is in use, or the certificate cannot be used.
        """
        running: list[asyncio.Task[None]] = []
        reload = self._reload(service)
        running.append(asyncio.create_task(reload.run(), name="reload"))
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.ask)
        serving = self.configuration.serving
        site = build_server(service, self.observation, serving, lambda: reload.configuration)
        try:
            if serving.secure_port:
                await site.start()
                pair = key_pair(serving)
                if pair is not None and site.tls is not None:
                    following = reload_on_change(site.tls, pair, service.clock)
                    running.append(asyncio.create_task(following, name="certificate"))
            yield
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running)
            await site.stop()

    def _reload(self, service: SchedulerApp) -> ConfigReload:
        metrics = self.observation.metrics

        def count_reload(succeeded: bool) -> None:
            metrics.reloads.labels("success" if succeeded else "failure").inc()
            metrics.reload_ok.set(succeeded)

        def apply(configuration: BatchSchedulerConfiguration) -> None:
            service.reconfigure(configuration.profiles, recording=configuration.sessions_kept > 0)
            self.observation.sessions.resize(configuration.sessions_kept)

        metrics.reload_ok.set(1)
        return ConfigReload(self.file, self.configuration, apply, service.clock, count_reload)
