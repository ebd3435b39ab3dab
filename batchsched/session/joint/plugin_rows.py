"""Rows: what the plugins' Constrain adds to a problem, and whose pods a plugin breaks over."""

from batchsched.errors import PluginError
from batchsched.framework.constrain import Batch, Row
from batchsched.session.tables.session_tables import SessionTables


def rows_of(tables: SessionTables, batch: Batch) -> tuple[tuple[Row, ...], dict[int, str]]:
    """Collect the rows of every plugin over a batch.

    When a plugin breaks, it is asked about each gang by itself: those over which it breaks are left out. One that
    breaks only over several gangs together loses its rows, which the walk makes up for, and the decision says so.

    Returns: the rows, and what broke by gang number.
    """
    try:
        return tables.pipeline.constrain(batch, tables.node_table), {}
    except PluginError:
        failures = _alone(tables, batch)
    rest = batch.of({one.gang for one in batch.candidates} - failures.keys())
    broken: set[str] = set()
    while True:
        try:
            return tables.pipeline.constrain(rest, tables.node_table, frozenset(broken)), failures
        except PluginError as error:
            tables.record_failure(error)
            broken.add(error.plugin)


def _alone(tables: SessionTables, batch: Batch) -> dict[int, str]:
    failures: dict[int, str] = {}
    for gang in sorted({one.gang for one in batch.candidates}):
        try:
            tables.pipeline.constrain(batch.of({gang}), tables.node_table)
        except PluginError as error:
            failures[gang] = str(error)
    return failures
