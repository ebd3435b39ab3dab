"""The ledger of queues: what each holds and what each wants, whenever one of the two changes."""

from collections.abc import Iterable, Mapping, Sequence

from batchsched.simulator.result import QueueSeries


class QueueSeriesRecorder:
    """Adds up requests by queue, and keeps a row for each queue that changed in a moment.

    Args:
      resources: R names, the columns of every row.
    """

    def __init__(self, resources: Sequence[str]) -> None:
        self._columns = {name: at for at, name in enumerate(resources)}
        self._held: dict[str, list[int]] = {}
        self._wanted: dict[str, list[int]] = {}
        self._touched: dict[str, None] = {}
        self._rows: list[tuple[int, str, tuple[int, ...], tuple[int, ...]]] = []
        self._moment = 0
        """Where the rows of the last second begin."""

    def want(self, queue: str, pods: Iterable[Mapping[str, int]], sign: int = 1) -> None:
        """Take in what pods request that came, or, with sign -1, that are gone; held or not."""
        self._add(self._wanted, queue, pods, sign)

    def hold(self, queue: str, pods: Iterable[Mapping[str, int]], sign: int = 1) -> None:
        """Take in what pods request that were bound, or, with sign -1, that are gone."""
        self._add(self._held, queue, pods, sign)

    def sample(self, now: int) -> None:
        """Keep a row for each queue that changed; of several rows of one second and queue the last stays."""
        if not self._touched:
            return
        if not self._rows or self._rows[-1][0] != now:
            self._moment = len(self._rows)
        fresh = {
            queue: (now, queue, self._amounts(self._held, queue), self._amounts(self._wanted, queue))
            for queue in self._touched
        }
        for at in range(self._moment, len(self._rows)):
            again = fresh.pop(self._rows[at][1], None)
            if again is not None:
                self._rows[at] = again
        self._rows.extend(fresh.values())
        self._touched.clear()

    def series(self) -> QueueSeries:
        """Return the columns."""
        times, queues, held, wanted = tuple(zip(*self._rows, strict=True)) or ((),) * 4
        return QueueSeries(tuple(self._columns), times, queues, held, wanted)

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
