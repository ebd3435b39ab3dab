"""Reload of the configuration on SIGHUP or when its file changes.

An invalid file is refused, and the configuration in force stays. Settings that are read only at the start (the Lease,
the connection, the port) keep their values. If the file changes one of them, a warning names it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from batchsched.config.load import load_configuration_with_warnings
from batchsched.config.schema import BatchSchedulerConfiguration
from batchsched.errors import BatchschedError
from batchsched.observability.logs import log_info, log_warning
from batchsched.ports.cluster import Clock

_LOG: Final = logging.getLogger(__name__)
CHECK_SECONDS: Final = 2.0
"""Seconds between two checks of the file."""
RELOADABLE_FIELDS: Final = frozenset(
    {"profiles", "sessionsKept", "explanations", "serving.authorizationAlwaysAllowPaths"}
)
"""Fields that take effect without a restart; the scheduler names of profiles are an exception."""
Apply = Callable[[BatchSchedulerConfiguration], None]
"""Applies a configuration, or raises and changes nothing."""
ReloadCallback = Callable[[bool], None]
"""Called after each reload with whether it succeeded."""


class ConfigReloader:
    """The component that reloads the configuration file when the file changes or a reload is requested.

    Args:
      file: The configuration file, which may be a mounted ConfigMap that Kubernetes replaces; None if there is none.
      now: The configuration at the start.
      apply: Applies a configuration.
      clock: The clock.
      on_reload: Called after each reload with True, or with False if the file was refused.
    """

    def __init__(
        self,
        file: Path | None,
        now: BatchSchedulerConfiguration,
        apply: Apply,
        clock: Clock,
        on_reload: ReloadCallback,
    ) -> None:
        self.configuration = now
        """The configuration in force."""
        self._file = file
        self._apply = apply
        self._clock = clock
        self._on_reload = on_reload
        self._seen = () if file is None else _file_version(file)
        self._requested = asyncio.Event()

    def request_reload(self) -> None:
        """Request a reload of the configuration even if its file did not change. This method handles SIGHUP."""
        self._requested.set()

    async def run(self) -> None:
        """Reload the configuration file after each change or request, until cancelled.

        If there is no configuration file, return at once.
        """
        file = self._file
        if file is None:
            return
        looking = asyncio.create_task(self._look(file), name="configuration")
        try:
            while True:
                await self._requested.wait()
                self._requested.clear()
                await self._read(file)
        finally:
            looking.cancel()

    async def _look(self, file: Path) -> None:
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            stamp = await asyncio.to_thread(_file_version, file)
            if stamp and stamp != self._seen:  # for a moment there may be none
                self._seen = stamp
                self._requested.set()

    async def _read(self, file: Path) -> None:
        try:
            loaded, warnings = await asyncio.to_thread(load_configuration_with_warnings, file)
            for warning in warnings:
                log_warning(_LOG, warning)
            in_force = merge_reloadable_fields(self.configuration, loaded)
            if in_force != self.configuration:
                self._apply(in_force)
        except BatchschedError as error:
            _LOG.error("the configuration is refused, and the old one kept: %s", error)
            self._on_reload(False)
            return
        fixed = list(changed_field_paths(in_force, loaded))
        if fixed:
            log_warning(_LOG, "Takes effect at the next start", fields=fixed)
        self.configuration = in_force
        log_info(_LOG, 0, "The configuration was read again", file=str(file))
        self._on_reload(True)


def merge_reloadable_fields(now: BaseModel, loaded: BaseModel, above: str = "") -> Any:
    """Return the current configuration with new values of the fields that can change without a restart."""
    changed = {}
    for name, path in _fields(now, above):
        value, new = getattr(now, name), getattr(loaded, name)
        if path in RELOADABLE_FIELDS:
            changed[name] = new
        elif isinstance(value, BaseModel):
            changed[name] = merge_reloadable_fields(value, new, f"{path}.")
    return now.model_copy(update=changed)


def changed_field_paths(now: BaseModel, loaded: BaseModel, above: str = "") -> Iterator[str]:
    """Yield the path in the configuration file of each field in which two configurations differ."""
    for name, path in _fields(now, above):
        value, new = getattr(now, name), getattr(loaded, name)
        if isinstance(value, BaseModel):
            yield from changed_field_paths(value, new, f"{path}.")
        elif value != new:
            yield path


def _fields(model: BaseModel, above: str) -> Iterator[tuple[str, str]]:
    for name, field in type(model).model_fields.items():
        yield name, above + (field.alias or name)


def _file_version(file: Path) -> tuple[int, ...]:
    """Return what identifies a version of the file; empty if the file does not exist at the moment."""
    try:
        status = file.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_ino, status.st_size
