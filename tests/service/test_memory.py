"""Freed memory returns to the operating system, and threads share one heap."""

import subprocess
import sys

import psutil
import pytest

from batchsched.service import memory
from batchsched.service.memory import release_memory_regularly, return_freed_memory_to_system

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


async def test_memory_is_released_every_minute_until_the_c_library_cannot(monkeypatch):
    answers, sleeps = iter((True, True, False)), []

    class RecordingClock:
        async def sleep(self, seconds: float) -> None:
            sleeps.append(seconds)

    monkeypatch.setattr(memory, "return_freed_memory_to_system", lambda: next(answers))
    await release_memory_regularly(RecordingClock())  # type: ignore[arg-type]
    assert sleeps == [60.0, 60.0, 60.0]


_COUNT_HEAPS = """
import ctypes, sys, threading
from batchsched.service.memory import share_one_heap

if sys.argv[1] == "shared" and not share_one_heap():
    sys.exit("no mallopt")
barrier = threading.Barrier(9)


def allocate() -> None:
    blocks = [bytearray(60_000) for _ in range(20)]
    barrier.wait()
    barrier.wait()


for _ in range(8):
    threading.Thread(target=allocate).start()
barrier.wait()
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
barrier.wait()
"""


def heaps_of_eight_threads(kind: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _COUNT_HEAPS, kind], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"not the C library of GNU: {done.stderr.strip()}")
    return done.stdout.count("<heap nr=")


def test_threads_share_one_heap():
    assert heaps_of_eight_threads("own") > 1
    assert heaps_of_eight_threads("shared") == 1
