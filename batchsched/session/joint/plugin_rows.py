"""Rows: what the plugins' Constrain adds to a problem, and whose pods a plugin breaks over."""

from batchsched.errors import PluginError
from batchsched.framework.constrain import Batch, Row
from batchsched.session.tables.frame import Frame


def rows_of(frame: Frame, batch: Batch) -> tuple[tuple[Row, ...], dict[int, str]]:
    """Collect the rows of every plugin over a batch.

    When a plugin breaks, it is asked about each gang by itself: those over which it breaks are left out. One that
    breaks only over several gangs together loses its rows, which the walk makes up for, and the decision says so.

    Returns: the rows, and what broke by gang number.
    """
    try:
        return frame.pipeline.constrain(batch, frame.table), {}
    except PluginError:
        failures = _alone(frame, batch)
    rest = batch.of({one.gang for one in batch.candidates} - failures.keys())
    broken: set[str] = set()
    while True:
        try:
            return frame.pipeline.constrain(rest, frame.table, frozenset(broken)), failures
        except PluginError as error:
            frame.note(error)
            broken.add(error.plugin)


def _alone(frame: Frame, batch: Batch) -> dict[int, str]:
    failures: dict[int, str] = {}
    for gang in sorted({one.gang for one in batch.candidates}):
        try:
            frame.pipeline.constrain(batch.of({gang}), frame.table)
        except PluginError as error:
            failures[gang] = str(error)
    return failures
