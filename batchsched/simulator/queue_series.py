"""The series of queues: what each queue has allocated and requested, at each second in which one of them changes."""

from collections.abc import Iterable, Mapping, Sequence

from batchsched.simulator.result import QueueSeries


class QueueSeriesRecorder:
    """Adds up requests by queue, and keeps a row for each queue and second with a change.

    Args:
      resources: R resource names, the columns of every row.
    """

    def __init__(self, resources: Sequence[str]) -> None:
        self._columns = {name: column for column, name in enumerate(resources)}
        self._allocated: dict[str, list[int]] = {}
        self._requested: dict[str, list[int]] = {}
        self._touched: dict[str, None] = {}
        self._rows: list[tuple[int, str, tuple[int, ...], tuple[int, ...]]] = []
        self._moment = 0
        """Index of the first row of the last second."""

    def want(self, queue: str, pods: Iterable[Mapping[str, int]], sign: int = 1) -> None:
        """Add the requests of created pods to a queue; with sign -1, subtract those of deleted pods."""
        self._add(self._requested, queue, pods, sign)

    def hold(self, queue: str, pods: Iterable[Mapping[str, int]], sign: int = 1) -> None:
        """Add the requests of bound pods to a queue; with sign -1, subtract those of deleted pods."""
        self._add(self._allocated, queue, pods, sign)

    def sample(self, now: int) -> None:
        """Keep a row for each queue that changed. A later row of the same second and queue replaces the earlier one."""
        if not self._touched:
            return
        if not self._rows or self._rows[-1][0] != now:
            self._moment = len(self._rows)
        fresh = {
            queue: (now, queue, self._amounts(self._allocated, queue), self._amounts(self._requested, queue))
            for queue in self._touched
        }
        for row in range(self._moment, len(self._rows)):
            newer = fresh.pop(self._rows[row][1], None)
            if newer is not None:
                self._rows[row] = newer
        self._rows.extend(fresh.values())
        self._touched.clear()

    def series(self) -> QueueSeries:
        """Return all rows as columns."""
        times, queues, allocated, requested = tuple(zip(*self._rows, strict=True)) or ((),) * 4
        return QueueSeries(tuple(self._columns), times, queues, allocated, requested)

    def _add(
        self, amounts: dict[str, list[int]], queue: str, pods: Iterable[Mapping[str, int]], sign: int
    ) -> None:
        row = amounts.setdefault(queue, [0] * len(self._columns))
        for pod in pods:
            for name, amount in pod.items():
                row[self._columns[name]] += sign * amount
        self._touched[queue] = None

    def _amounts(self, amounts: Mapping[str, list[int]], queue: str) -> tuple[int, ...]:
        return tuple(amounts.get(queue, [0] * len(self._columns)))
