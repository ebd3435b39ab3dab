"""Reload of the configuration on SIGHUP or when its file changes. An invalid file is refused; the old configuration
stays.

Settings that are read only at the start (the Lease, the connection, the port) keep their values. If the file changes
one of them, a warning names it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from batchsched.config.load import load_with_warnings
from batchsched.config.schema import BatchSchedulerConfiguration
from batchsched.errors import BatchschedError
from batchsched.observability.logs import log_event, log_warning
from batchsched.ports.clock import Clock

_LOG: Final = logging.getLogger(__name__)
LOOK: Final = 2.0
"""Seconds between two checks of the file."""
LIVE: Final = frozenset({"profiles", "sessionsKept", "serving.authorizationAlwaysAllowPaths"})
"""Fields that take effect without a restart; the scheduler names of profiles are an exception."""
Apply = Callable[[BatchSchedulerConfiguration], None]
"""Applies a configuration, or raises and changes nothing."""
Told = Callable[[bool], None]
"""Called after each reload with whether it succeeded."""


class ConfigReload:
    """Follows one configuration file.

    Args:
      file: The file, which may be replaced as the mount of a ConfigMap is; None if there is none.
      now: The configuration at the start.
      apply: Applies a configuration.
      clock: The clock.
      told: Called after each reload.
    """

    def __init__(
        self, file: Path | None, now: BatchSchedulerConfiguration, apply: Apply, clock: Clock, told: Told
    ) -> None:
        self.configuration = now
        """The configuration in force."""
        self._file = file
        self._apply = apply
        self._clock = clock
        self._told = told
        self._seen = () if file is None else _stamp(file)
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Request a reload even if the file did not change; the handler of SIGHUP."""
        self._asked.set()

    async def run(self) -> None:
        """Follow the file until cancelled."""
        file = self._file
        if file is None:
            return
        looking = asyncio.create_task(self._look(file), name="configuration")
        try:
            while True:
                await self._asked.wait()
                self._asked.clear()
                await self._read(file)
        finally:
            looking.cancel()

    async def _look(self, file: Path) -> None:
        while True:
            await self._clock.sleep(LOOK)
            stamp = await asyncio.to_thread(_stamp, file)
            if stamp and stamp != self._seen:  # for a moment there may be none
                self._seen = stamp
                self._asked.set()

    async def _read(self, file: Path) -> None:
        try:
            found, warnings = await asyncio.to_thread(load_with_warnings, file)
            for warning in warnings:
                log_warning(_LOG, warning)
            in_force = taken_up(self.configuration, found)
            if in_force != self.configuration:
                self._apply(in_force)
        except BatchschedError as error:
            _LOG.error("the configuration is refused, and the old one kept: %s", error)
            self._told(False)
            return
        fixed = list(differences(in_force, found))
        if fixed:
            log_warning(_LOG, "Takes effect at the next start", fields=fixed)
        self.configuration = in_force
        log_event(_LOG, 0, "The configuration was read again", file=str(file))
        self._told(True)


def taken_up(now: BaseModel, found: BaseModel, above: str = "") -> Any:
    """Return `now` with the values of `found` in all fields that take effect without a restart."""
    changed = {}
    for name, path in _fields(now, above):
        value, new = getattr(now, name), getattr(found, name)
        if path in LIVE:
            changed[name] = new
        elif isinstance(value, BaseModel):
            changed[name] = taken_up(value, new, f"{path}.")
    return now.model_copy(update=changed)


def differences(now: BaseModel, found: BaseModel, above: str = "") -> Iterator[str]:
    """Yield the paths of the fields that differ, as the file names them."""
    for name, path in _fields(now, above):
        value, new = getattr(now, name), getattr(found, name)
        if isinstance(value, BaseModel):
            yield from differences(value, new, f"{path}.")
        elif value != new:
            yield path


def _fields(model: BaseModel, above: str) -> Iterator[tuple[str, str]]:
    for name, field in type(model).model_fields.items():
        yield name, above + (field.alias or name)


def _stamp(file: Path) -> tuple[int, ...]:
    """Return what identifies a version of the file; empty if the file does not exist at the moment."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ino, found.st_size
