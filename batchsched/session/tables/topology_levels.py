"""Topology levels and their domains, with the numbers by which the solver refers to them."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from batchsched.api.crd.podgroup import NO_TOPOLOGY, PodGroup, SubGroupTopology, TopologyRequest
from batchsched.api.external.pod_group import is_converted_from_external
from batchsched.api.snapshot import Snapshot
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.solver.problem import NONE, IndexArray


class UnknownLevelError(Exception):
    """The error that is raised if a PodGroup names a Topology or a topology level that does not exist."""


@dataclass(frozen=True, slots=True)
class RequestedLevels:
    """The indexes of the required, preferred and slice levels of a gang or subGroup; NONE for no level."""

    required: int = NONE
    preferred: int = NONE
    slices: int = NONE


ANYWHERE: Final = RequestedLevels()


class TopologyLevels:
    """The levels of all Topologies, with the domain of each node at each level.

    A domain is a value of the level's node label.

    Attributes:
      domains: [L, N] domain of each node at each level, -1 if the node lacks the label.
      values: label values by level: `values[level][domain]` names a domain.
      names: (topology, level) by level.
      wider: the next wider level of the same topology by level, or NONE.
    """

    def __init__(self, snapshot: Snapshot, table: NodeTable) -> None:
        self._index: dict[tuple[str, str], int] = {}
        self._specs = {topology.name: topology.spec for topology in snapshot.topologies}
        self._table = table
        self.names: list[tuple[str, str]] = []
        self.values: list[tuple[str, ...]] = []
        self.wider: list[int] = []
        rows: list[IndexArray] = []
        self._label_levels: dict[str, int] = {}
        """The first level of a Topology by node label."""
        # Sorted, so that level numbers, and with them ties of the solver, do not depend on the order of watch events.
        for topology in sorted(snapshot.topologies, key=lambda topology: topology.name):
            wider = NONE
            for level in topology.spec.levels:
                domains, values = table.label_indexes_and_values(level.node_label)
                self._index[topology.name, level.name] = len(rows)
                self._label_levels.setdefault(level.node_label, len(rows))
                self.names.append((topology.name, level.name))
                self.values.append(values)
                self.wider.append(wider)
                wider = len(rows)
                rows.append(domains)
        self.domains = np.stack(rows) if rows else np.zeros((0, len(table.nodes)), np.int32)

    def requested_levels_of_gang(self, group: PodGroup | None) -> RequestedLevels:
        """Return the topology levels that a gang requires and prefers for all its pods together.

        Raises:
          UnknownLevelError: the topology or a level does not exist.
        """
        if group is None or group.spec.topology is None:
            return ANYWHERE
        topology = group.spec.topology
        if is_converted_from_external(group) and not self._has_level(topology.name, topology.preferred):
            # A preference of another scheduler refuses no gang.
            topology = topology.model_copy(update={"preferred": None})
        return self._choice(topology.name, topology)

    def requested_levels_of_subgroups(self, group: PodGroup | None) -> tuple[RequestedLevels, ...]:
        """Return the topology levels that each subGroup of a gang requires and prefers.

        A subGroup that names no topology uses the gang's.

        Raises:
          UnknownLevelError: the topology or a level does not exist.
        """
        if group is None:
            return ()
        spec = group.spec
        return tuple(
            ANYWHERE
            if sub.topology is None
            else self._choice(spec.topology_name_of_subgroup(sub), sub.topology)
            for sub in spec.sub_groups
        )

    def level_indexes_of_topology(self, topology: str) -> tuple[int, ...]:
        """Return the indexes of all levels of a topology, the widest first; () if there is no such topology."""
        spec = self._specs.get(topology)
        return tuple(self._index[topology, level.name] for level in spec.levels) if spec is not None else ()

    def find_or_add_label_level(self, key: str, table: NodeTable) -> int:
        """Return the index of the topology level that a node label defines; add the level if it does not exist."""
        if ("", key) not in self._index:
            domains, values = table.label_indexes_and_values(key)
            self._index["", key] = len(self.names)
            self.names.append(("", key))
            self.values.append(values)
            self.wider.append(NONE)
            self.domains = np.vstack([self.domains, domains[np.newaxis]])
        return self._index["", key]

    def _has_level(self, topology: str, level: str | None) -> bool:
        spec = self._specs.get(topology)
        return spec is not None and level is not None and spec.find_level_index(level) is not None

    def _choice(self, topology: str, request: TopologyRequest | SubGroupTopology) -> RequestedLevels:
        slices = request.slices.level if request.slices is not None else None
        return RequestedLevels(
            self._level(topology, request.required),
            self._level(topology, request.preferred),
            self._level(topology, slices),
        )

    def _level(self, topology: str, level: str | None) -> int:
        if level is None:
            return NONE
        if topology == NO_TOPOLOGY:
            # A level of the default Topology may be named like this as well.
            index = self._label_levels.get(level, self._index.get((TopologyRequest().name, level)))
            return index if index is not None else self.find_or_add_label_level(level, self._table)
        spec = self._specs.get(topology)
        if spec is None:
            existing = ", ".join(sorted(self._specs)) or "none"
            raise UnknownLevelError(f"no Topology is named {topology!r}; there are: {existing}")
        index = spec.find_level_index(level)
        if index is None:
            existing = ", ".join(item.name for item in spec.levels)
            raise UnknownLevelError(
                f"Topology {topology!r} has no level {level!r}; its levels are: {existing}"
            )
        return self._index[topology, spec.levels[index].name]
