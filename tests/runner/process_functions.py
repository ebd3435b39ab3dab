"""Functions for the tests of processes; the module imports little, so that a process starts fast."""

import os
import time


def add(shared: int, argument: int) -> int:
    """Add a number to the shared one."""
    return shared + argument


def fail(shared: int, argument: int) -> float:
    """Raise an error."""
    return shared / 0


def end(shared: int, argument: int) -> int:
    """End the process."""
    os._exit(1)


def wait(shared: float, argument: int) -> float:
    """Wait for the shared number of seconds."""
    time.sleep(shared)
    return shared
