"""The workers of a sweep: this process, local processes, or an existing Dask or Ray cluster.

All of them accept a function with one argument and return a `concurrent.futures.Future`. Results do not depend on the
kind of worker.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_context
from typing import Any, Final, Protocol, TypeVar

from batchsched.errors import InvalidInput, Unreachable
from batchsched.runner.solver_processes import exit_when_parent_ends

A = TypeVar("A")
R = TypeVar("R")

DASK: Final = ("tcp", "tls", "ws", "wss", "ucx")
RAY: Final = "ray"
CONNECT_TIMEOUT: Final = "30s"
"""Maximum time to wait for the connection to a cluster."""


class LabWorkers(Protocol):
    """The interface of workers that execute functions of the lab, in this process or in others."""

    def submit(self, function: Callable[[A], R], argument: A, /) -> "Future[R]":
        """Submit a function for execution, and return a future with its result.

        The function, its argument and its result must be picklable.
        """
        ...


@contextmanager
def open_workers(address: str | None, processes: int) -> Iterator[LabWorkers]:
    """Context manager: start local workers, or connect to a Dask or Ray cluster, and yield the workers.

    Args:
      address: `tcp://host:port` of a Dask scheduler or `ray://host:port` of a Ray cluster; None for local processes.
      processes: The number of local processes; 1: this process.

    Raises:
      InvalidInput: The address has another scheme, or the client library is not installed.
      Unreachable: The cluster does not answer.
    """
    if address is None and processes <= 1:
        yield InProcessWorkers()
        return
    if address is None:
        with _processes(processes) as pool:
            yield pool
        return
    kind = address.partition("://")[0]
    if kind in DASK:
        with _dask(address) as cluster:
            yield cluster
    elif kind == RAY:
        with _ray(address) as cluster:
            yield cluster
    else:
        raise InvalidInput(
            f"expected tcp://HOST:PORT of a Dask scheduler or ray://HOST:PORT, found {address!r}",
            object="--address",
        )


class InProcessWorkers:
    """Workers that execute each function in this process as soon as it is submitted."""

    def submit(self, function: Callable[[A], R], argument: A, /) -> "Future[R]":
        """Execute the function in this process, and return a future that is already finished."""
        future: Future[R] = Future()
        future.set_result(function(argument))
        return future


@contextmanager
def _processes(count: int) -> Iterator[Executor]:
    pool = ProcessPoolExecutor(count, get_context("spawn"), initializer=exit_when_parent_ends)
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _dask(address: str) -> Iterator[LabWorkers]:
    distributed = _import("distributed", "Dask", "distributed")
    try:
        client = distributed.Client(address, timeout=CONNECT_TIMEOUT, set_as_default=False)
    except OSError as error:
        raise Unreachable(f"no Dask scheduler answers at {address}: {error}") from error
    with client:
        yield client.get_executor(pure=False)


def _import(module: str, product: str, requirement: str) -> Any:
    """Import an optional client library, without its incomplete annotations.

    Raises:
      InvalidInput: It is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise InvalidInput(
            f"{product} is not installed here; run: pip install '{requirement}'", object="--address"
        ) from error


@contextmanager
def _ray(address: str) -> Iterator[LabWorkers]:
    ray = _import("ray", "Ray", "ray[client]")
    try:
        ray.init(address, log_to_driver=False)
    except (ConnectionError, RuntimeError) as error:
        raise Unreachable(f"no Ray cluster answers at {address}: {error}") from error
    try:
        yield _Ray(ray)
    finally:
        ray.shutdown()


class _Ray:
    """Workers that execute functions as Ray tasks."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def submit(self, function: Callable[[A], R], argument: A, /) -> "Future[R]":
        made: Future[R] = self._ray.remote(function).remote(argument).future()
        return made
