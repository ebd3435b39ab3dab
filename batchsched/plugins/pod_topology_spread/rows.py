"""Rows."""

from collections.abc import Sequence

from batchsched.framework.constrain import Batch, Row
from batchsched.framework.nodes import NodeTable
from batchsched.model.affinity import TopologySpreadConstraint


def spread_rows(
    batch: Batch, table: NodeTable, defaults: tuple[TopologySpreadConstraint, ...]
) -> Sequence[Row]:
    """Return the rows of all candidates."""
    return ()
