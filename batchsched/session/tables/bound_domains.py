"""Topology domains of the bound pods of a gang."""

from collections import Counter
from collections.abc import Collection

from batchsched.api.core.pod import SUB_GROUP_LABEL
from batchsched.session.tables.gang import GangState
from batchsched.session.tables.topology_levels import TopologyLevels
from batchsched.solver.problem import NONE


def count_bound_pods_by_domain(
    levels: TopologyLevels,
    members: GangState,
    level: int,
    subgroups: Collection[str],
    *,
    terminating: bool = True,
) -> Counter[int]:
    """Count the bound pods of a gang by their domain at a topology level; pods without a domain count under NONE.

    Args:
      levels: the levels.
      members: the gang.
      level: number of the level.
      subgroups: the subGroups of the pods that count; if empty, all pods of the gang count.
      terminating: whether pods that are being deleted count.
    """
    domains = levels.domains[level]
    return Counter(
        int(domains[node])
        for pod, node in members.bound.values()
        if node >= 0
        and (not subgroups or pod.labels.get(SUB_GROUP_LABEL) in subgroups)
        and (terminating or not pod.terminating)
    )


def domain_with_most_bound_pods(
    levels: TopologyLevels, members: GangState, level: int, subgroups: Collection[str]
) -> int:
    """Return the domain with the most bound pods of a gang at a topology level; NONE if no domain has any.

    Args:
      levels: the levels.
      members: the gang.
      level: number of the required level, NONE for none.
      subgroups: the subGroups of the pods that count; if empty, all pods of the gang count.
    """
    if level == NONE or not members.bound:
        return NONE
    domains = count_bound_pods_by_domain(levels, members, level, subgroups)
    # Pods on nodes without the label are in no domain, so they cannot pin the gang to one.
    domains.pop(NONE, None)
    return min(domains, key=lambda domain: (-domains[domain], domain), default=NONE)
