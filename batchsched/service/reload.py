"""The configuration, read again on SIGHUP and when its file changes: a bad one is refused, and the old one kept."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from batchsched.errors import BatchschedError
from batchsched.ports.clock import Clock
from batchsched.service.logs import say, warn
from batchsched.settings.load import load_with_warnings
from batchsched.settings.schema import BatchSchedulerConfiguration, Profile

_LOG: Final = logging.getLogger(__name__)
LOOK: Final = 2.0
"""Seconds between two looks at the file."""
Apply = Callable[[Sequence[Profile]], None]
"""Goes on with other profiles, or raises and changes nothing."""
Told = Callable[[bool], None]
"""Hears whether a configuration that was read is in force now."""


class Reload:
    """Follows one file.

    Args:
      file: the configuration; it may be replaced, as the mount of a ConfigMap is. None: there is none to follow.
      now: what was read from it at the start.
      apply: takes other profiles up.
      clock: waits between two looks.
      told: hears how it went.
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
        """Read the file again soon, whether it changed or not; for SIGHUP."""
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
                warn(_LOG, warning)
            if found.profiles != self.configuration.profiles:
                self._apply(found.profiles)
        except BatchschedError as error:
            _LOG.error("the configuration is refused, and the old one kept: %s", error)
            self._told(False)
            return
        fixed = _fixed(self.configuration, found)
        if fixed:
            warn(_LOG, "Takes effect at the next start", fields=fixed)
        self.configuration = self.configuration.model_copy(update={"profiles": found.profiles})
        say(_LOG, 0, "The configuration was read again", file=str(file))
        self._told(True)


def _fixed(now: BatchSchedulerConfiguration, found: BatchSchedulerConfiguration) -> list[str]:
    """Return what differs and is looked at by the start only."""
    fields = BatchSchedulerConfiguration.model_fields
    return [
        field.alias or name
        for name, field in fields.items()
        if name != "profiles" and getattr(now, name) != getattr(found, name)
    ]


def _stamp(file: Path) -> tuple[int, ...]:
    """Return what changes when a file does; nothing while it is not there."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ino, found.st_size
