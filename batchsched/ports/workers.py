"""The interfaces to processes that compute parts of a session, in addition to the session's own process.

They compute pure functions: the result depends on the arguments only, so that a session may also compute each of them
itself. An implementation therefore cannot change the decision, and a lost process costs time only.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

S = TypeVar("S")
A = TypeVar("A")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")


class PendingResult(Protocol[R_co]):
    """The pending result of a function that runs in another process."""

    def cancel_if_not_started(self) -> bool:
        """Cancel the function if it has not started; return True if it was canceled."""
        ...

    def is_finished(self) -> bool:
        """Return True if `wait_for_result` would return at once."""
        ...

    def wait_for_result(self, seconds: float) -> R_co | None:
        """Wait up to `seconds` for the result; return None after a timeout or if the process was lost.

        Raises:
          BatchschedError: the function raised it.
        """
        ...


class SharedInput(Protocol):
    """An input that many submitted functions share, such as the problem of a session. Each process receives it once."""

    def submit(self, function: Callable[[S, A], R], argument: A, /) -> PendingResult[R]:
        """Submit a function that another process calls with the shared input and one further argument.

        Functions start in the order of submission. The function, its argument and its result must be picklable.
        """
        ...


class SolverWorkers(Protocol):
    """The processes that run functions for the solver of a session, in parallel to the session itself."""

    @property
    def process_count_including_session(self) -> int:
        """The number of processes, including the process of the session itself."""
        ...

    def share_input(self, value: object) -> SharedInput:
        """Send a picklable input to the processes; return a `SharedInput` for functions that use the input.

        It replaces the input that was shared before.
        """
        ...
