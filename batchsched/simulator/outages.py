"""Node failures, drawn from a seed: independent nodes, exponential times between failures and to repair.

Source: Schroeder and Gibson, A Large-Scale Study of Failures in High-Performance Computing Systems, DSN 2006, for
rates; exponential times are the simplification that most simulators share.
"""

from collections.abc import Sequence

import numpy as np

from batchsched.api.core.node import Node
from batchsched.errors import InvalidInput
from batchsched.simulator.workload import Outage


def draw_outages(
    nodes: Sequence[Node], between: float, repair: float, period: tuple[int, int], seed: int
) -> tuple[Outage, ...]:
    """Draw the failures of nodes in a period, ordered by time.

    Args:
      nodes: names of the nodes that may fail.
      between: mean seconds from the repair of a node to its next failure.
      repair: mean seconds until a node is repaired.
      period: the first and the last second in which nodes fail; repairs may be later.
      seed: seed of the draws.

    Raises:
      InvalidInput: a mean is not above 0.
    """
    if between <= 0 or repair <= 0:
        raise InvalidInput("expected a mean time of more than 0 seconds", object="outages")
    random = np.random.default_rng(seed)
    first, last = period
    outages = []
    for node in nodes:
        failure = first + random.exponential(between)
        while failure <= last:
            repaired = failure + max(1.0, random.exponential(repair))
            outages.append(Outage(node.name, int(failure), int(np.ceil(repaired))))
            failure = np.ceil(repaired) + random.exponential(between)
    return tuple(sorted(outages, key=lambda outage: (outage.at, outage.node)))
