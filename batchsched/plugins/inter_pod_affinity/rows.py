"""Rows."""

from collections.abc import Sequence

from batchsched.framework.constrain import Batch, Row
from batchsched.framework.nodes import NodeTable


def affinity_rows(batch: Batch, table: NodeTable) -> Sequence[Row]:
    """Return the rows of all candidates."""
    return ()
