"""Steps that repeat in a thread while a test acts: clients, controllers and faults beside the scheduler."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any


@contextmanager
def repeating(*steps: Callable[[], Any], seconds: float) -> Iterator[None]:
    """Repeat steps in turn in the background, with a pause of `seconds` after each, and end after the last one.

    The steps end with the first exception, which is raised at the end of the context.
    """
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            for step in steps:
                step()
                time.sleep(seconds)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            yield
        finally:
            over.set()
        running.result()
