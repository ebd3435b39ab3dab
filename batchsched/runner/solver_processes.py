"""Solver processes, which stay alive from session to session; a process that is lost is started again.

They are spawned instead of forked, because OR-Tools has threads. Each starts with its first function, so that a
scheduler without a search has none. They end with the process that started them.
"""

import logging
import os
import pickle
import signal
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from multiprocessing import get_context, parent_process
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, Generic, TypeVar

from typing_extensions import override

from batchsched.ports.workers import PendingResult, SharedInput, SolverWorkers

S = TypeVar("S")
A = TypeVar("A")
R = TypeVar("R")

_LOG = logging.getLogger(__name__)

MAX_LOSSES: Final = 3
"""How often in a row a process may be lost; then it is not started again."""
LOST: Final = (BrokenExecutor, CancelledError, OSError, MemoryError, pickle.PicklingError)
"""Errors of a process, as opposed to those of its function. A timeout is an OSError."""


class SolverProcesses(SolverWorkers):
    """A pool of local processes that execute functions for the solver.

    Args:
      workers: the number of processes including this process; one less is started.
    """

    def __init__(self, workers: int) -> None:
        self._count = workers
        self._numbers = count(1)
        self._idle: SimpleQueue[_Process | None] = SimpleQueue()
        """Processes without a function; None wakes the threads that wait for one if none is left."""
        self._usable_count = workers - 1
        for _ in range(workers - 1):
            self._idle.put(_Process())
        # Each thread waits for one process, so that functions that have not started can be withdrawn.
        self._threads = ThreadPoolExecutor(workers - 1, thread_name_prefix="solver-process")

    @property
    @override
    def process_count_including_session(self) -> int:
        return self._count

    @override
    def share_input(self, value: object) -> SharedInput:
        return _Shared(self, next(self._numbers), pickle.dumps(value, pickle.HIGHEST_PROTOCOL))

    def submit(
        self, number: int, data: bytes, function: Callable[[Any, A], R], argument: A
    ) -> PendingResult[R]:
        """Submit a function to be called in a process with a shared input and one further argument.

        Args:
          number: the number of the shared input, by which a process recognizes the input that it has loaded.
          data: the shared input, pickled.
          function: the function.
          argument: the further argument.
        """
        used: list[_Process] = []

        def compute_in_idle_process() -> R:
            process = self._idle.get()
            if process is None:
                self._idle.put(None)
                raise BrokenExecutor("all processes were lost too often")
            used.append(process)
            try:
                return process.run_function(number, data, function, argument)
            finally:
                used.clear()
                self._put_back(process)

        return _Pending(self._threads.submit(compute_in_idle_process), used)

    def _put_back(self, process: "_Process") -> None:
        if process.losses < MAX_LOSSES:
            self._idle.put(process)
            return
        _LOG.error("a process of the solver was lost %d times, and is not started again", process.losses)
        self._usable_count -= 1
        if not self._usable_count:
            self._idle.put(None)

    def close(self) -> None:
        """End all processes after their current functions; cancel the functions that have not begun."""
        self._threads.shutdown(cancel_futures=True)
        while not self._idle.empty():
            process = self._idle.get()
            if process is not None:
                process.close()


class _Process:
    """One solver process, which its first function call starts."""

    def __init__(self) -> None:
        self._executor: ProcessPoolExecutor | None = None
        self._loaded, self._pid = 0, 0
        self.losses = 0
        """How often in a row the process was lost."""

    def run_function(self, number: int, data: bytes, function: Callable[[Any, A], R], argument: A) -> R:
        """Call a function in the process and return its result; only one thread may use this method at a time.

        Raises:
          BrokenExecutor: the process was lost.
        """
        executor = self._started()
        try:
            if not self._pid:
                self._pid = executor.submit(os.getpid).result()
            if self._loaded != number:
                executor.submit(_load, data).result()
                self._loaded = number
            result: R = executor.submit(_call, function, argument).result()
        except BrokenExecutor:
            _LOG.warning("a process of the solver ended; its work is done by the session's own process")
            self.losses += 1
            self.close()
            raise
        self.losses = 0
        return result

    def kill(self) -> None:
        """Kill a hanging process; otherwise the thread that waits for it would keep this program alive."""
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process; the next call of `run_function` starts a new process."""
        if self._executor is not None:
            self._executor.shutdown()
        self._executor, self._loaded, self._pid = None, 0, 0

    def _started(self) -> ProcessPoolExecutor:
        if self._executor is None:
            self._executor = ProcessPoolExecutor(1, get_context("spawn"), initializer=exit_when_parent_ends)
        return self._executor


class _Shared(SharedInput):
    """A shared input of several functions, which each process loads before it calls the first of them."""

    def __init__(self, processes: SolverProcesses, number: int, data: bytes) -> None:
        self._processes, self._number, self._data = processes, number, data

    @override
    def submit(self, function: Callable[[S, A], R], argument: A, /) -> PendingResult[R]:
        try:
            return self._processes.submit(self._number, self._data, function, argument)
        except RuntimeError as error:  # the interpreter ends, and starts no more threads
            lost: Future[R] = Future()
            lost.set_exception(BrokenExecutor(str(error)))
            return _Pending(lost, [])


class _Pending(PendingResult[R], Generic[R]):
    """The future result of a submitted function, and the process that computes it, once it has begun."""

    def __init__(self, future: "Future[R]", used: list[_Process]) -> None:
        self._future, self._used = future, used

    @override
    def cancel_if_not_started(self) -> bool:
        return self._future.cancel()

    @override
    def is_finished(self) -> bool:
        return self._future.done()

    @override
    def wait_for_result(self, seconds: float) -> R | None:
        try:
            return self._future.result(seconds)
        except TimeoutError:
            for process in tuple(self._used):
                process.kill()
            return None
        except LOST:
            return None


# ------------------------------------------------------------------------------------ in the process


def exit_when_parent_ends() -> None:
    """End this process as soon as its parent process has ended, because a killed parent cannot end it."""
    # Only the parent handles Ctrl-C; otherwise each process would print a traceback.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:

        def exit_after_parent() -> None:
            parent.join()
            os._exit(1)

        Thread(target=exit_after_parent, daemon=True).start()


_loaded: list[Any] = []
"""The shared input of this process: the last one only, so that it does not accumulate memory."""


def _load(data: bytes) -> None:
    _loaded[:] = [pickle.loads(data)]


def _call(function: Callable[[Any, A], R], argument: A) -> R:
    return function(_loaded[0], argument)
