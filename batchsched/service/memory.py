"""Saves memory: returns freed memory to the operating system, and lets all threads share one heap."""

import asyncio
import ctypes
from collections.abc import Callable
from typing import Final

from batchsched.ports.cluster import Clock

MEMORY_RELEASE_SECONDS: Final = 60.0
"""Seconds between two returns of free memory to the operating system."""
_M_ARENA_MAX: Final = -8
"""The parameter of `mallopt` that limits the number of heaps. Source: `malloc.h` of the GNU C library."""


def _c_function(name: str) -> Callable[..., int] | None:
    """Return a function of the C library; None if the library does not have it."""
    try:
        function: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError):
        return None
    return function


def share_one_heap() -> bool:
    """Let all threads allocate from one heap of the C library. Call it before the first thread starts.

    A thread with a heap of its own keeps free memory there that no other thread can use.

    Returns:
      False if the C library has no `mallopt`, or does not know the parameter; that of GNU does.
    """
    set_parameter = _c_function("mallopt")
    return set_parameter is not None and bool(set_parameter(_M_ARENA_MAX, 1))


def return_freed_memory_to_system() -> bool:
    """Give memory that the process has freed back to the operating system, by `malloc_trim` of the C library.

    Returns:
      False if the C library has no `malloc_trim`; that of GNU has it.
    """
    trim = _c_function("malloc_trim")
    if trim is None:
        return False
    trim(0)
    return True


async def release_memory_regularly(clock: Clock) -> None:
    """Return freed memory to the operating system periodically; end if the C library does not support it.

    Otherwise the heap would keep its largest size after a tenant submitted large objects.
    """
    while True:
        await clock.sleep(MEMORY_RELEASE_SECONDS)
        if not await asyncio.to_thread(return_freed_memory_to_system):
            return
