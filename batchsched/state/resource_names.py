"""The names of the resources that have a column in the tables of a session, such as the node table."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod, PodSpec
from batchsched.api.core.pod_field_limits import LARGE_SPEC_BYTES, describe_exceeded_field_limit
from batchsched.api.core.requests import pod_requests
from batchsched.api.snapshot import Snapshot

MAX_UNOFFERED_RESOURCES: Final = 256
"""Maximum number of resources without a node that offers them that have columns."""


def requests_unless_spec_too_large(pod: Pod) -> Mapping[str, int]:
    """Return the resource requests of a pod, or {} for a pending pod that is refused because its spec is too large.

    Raises:
      InvalidQuantity: an amount is not a quantity.
    """
    return {} if not pod.node_name and describe_exceeded_field_limit(pod.spec) else pod_requests(pod)


class ResourceColumnNames:
    """The resources that have a column in the tables of a scheduler: those that nodes offer or pods request.

    A resource that no node offers has a column, so that a refusal can state the missing amount. If pods request more
    such resources than `MAX_UNOFFERED_RESOURCES`, none of these has a column: each column has an entry for every
    node, and one namespace could name a hundred thousand.

    Args:
      snapshot: the nodes and pods.
      requests_of: returns the requests of a pod by resource.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        requests_of: Callable[[Pod], Mapping[str, int]] = requests_unless_spec_too_large,
    ) -> None:
        self._requests_of = requests_of
        # By id of the spec. The value keeps the spec alive, so that its id is not used again.
        self._specs: dict[int, PodSpec] = {}
        self.kept_spec_bytes = 0
        """Bytes of JSON of the new specs that `has_columns_for_pod` read, and of large specs of removed pods."""
        offered: set[str] = set()
        for node in snapshot.nodes:
            offered.update(node.allocatable_quantities)
        requested: set[str] = set()
        for pod in snapshot.pods:
            if id(pod.spec) not in self._specs:
                self._specs[id(pod.spec)] = pod.spec
                requested.update(requests_of(pod))
        self.has_too_many = len(requested - offered) > MAX_UNOFFERED_RESOURCES
        """True if resources that no node offers have no column."""
        self.with_column = frozenset(offered if self.has_too_many else offered | requested)
        """The names of the resources with a column."""

    def has_columns_for_node(self, node: Node) -> bool:
        """Return whether the scheduler's tables have a column for each resource that a node offers."""
        return self.with_column.issuperset(node.allocatable_quantities)

    def has_columns_for_pod(self, pod: Pod) -> bool:
        """Return whether the scheduler's tables have each column that a pod's resource requests need."""
        if id(pod.spec) in self._specs:
            return True
        is_covered = self.has_too_many or self.with_column.issuperset(self._requests_of(pod))
        if is_covered:
            self._specs[id(pod.spec)] = pod.spec
            self.kept_spec_bytes += len(msgspec.json.encode(pod.spec))
        return is_covered

    def add_kept_spec_bytes_of_removed_pod(self, pod: Pod) -> None:
        """Add the size of a removed pod's spec to `kept_spec_bytes`, if the spec is large.

        The tables may still keep the spec, which they got with the Snapshot.
        """
        size = len(msgspec.json.encode(pod.spec))
        if size >= LARGE_SPEC_BYTES:
            self.kept_spec_bytes += size
