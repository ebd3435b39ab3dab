"""The gang orders that batchsched ships, by name."""

from collections.abc import Mapping
from typing import Final

from batchsched.queues.gang_order.batch import F1, Fcfs, Priority, Saf, Sjf, Wfp3
from batchsched.queues.gang_order.headroom import Headroom

POLICIES: Final[Mapping[str, type]] = {
    one.name: one for one in (Priority, Fcfs, Sjf, Saf, Wfp3, F1, Headroom)
}
