"""The process of the scheduler returns memory that it no longer uses."""

from typing import Any

import psutil
import pytest

from batchsched.service import process
from batchsched.service.process import ReplicaProcess, return_freed_memory_to_system

BLOCK_BYTES = 60_000
"""Below the size from which the C library maps each block on its own."""


def test_free_memory_between_used_blocks_is_returned_to_the_operating_system():
    if not return_freed_memory_to_system():
        pytest.skip("the C library has no malloc_trim")
    blocks = [bytearray(b"x" * BLOCK_BYTES) for _ in range(2000)]
    kept = blocks[::20]
    used = psutil.Process().memory_info().rss
    del blocks
    return_freed_memory_to_system()
    assert used - psutil.Process().memory_info().rss > 0.8 * 1900 * BLOCK_BYTES
    assert len(kept) == 100


async def test_process_releases_memory_every_minute_until_the_c_library_cannot(monkeypatch):
    answers, sleeps = iter((True, True, False)), []

    class RecordingClock:
        async def sleep(self, seconds: float) -> None:
            sleeps.append(seconds)

    monkeypatch.setattr(process, "return_freed_memory_to_system", lambda: next(answers))
    replica = ReplicaProcess(Any, RecordingClock(), None, Any, Any)  # type: ignore[arg-type]
    await replica._release_memory()
    assert sleeps == [60.0, 60.0, 60.0]
