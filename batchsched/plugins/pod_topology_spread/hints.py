"""Events that may help a pod refused by PodTopologySpread: changes of matching pods and of eligible nodes."""

from collections.abc import Hashable, Sequence

from batchsched.api.core.cluster_objects import ReplicaSet, ReplicationController, Service, StatefulSet
from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod, TopologySpreadConstraint
from batchsched.framework.events import Action, ClusterEventWithHint, Hint, Resource
from batchsched.framework.nodes.label_index import Selection
from batchsched.framework.plugin_support.node_selection import selects_node
from batchsched.framework.plugin_support.taints import count_untolerated
from batchsched.plugins.pod_topology_spread.constraints import DO_NOT_SCHEDULE, HONOR, selectors_of
from batchsched.plugins.pod_topology_spread.counts import KEEPS_AWAY

WORKLOADS = (
    Resource.SERVICE,
    Resource.REPLICATION_CONTROLLER,
    Resource.REPLICA_SET,
    Resource.STATEFUL_SET,
)
Selecting = Service | ReplicationController | ReplicaSet | StatefulSet


class SpreadHints:
    """The hints of the plugin in one profile.

    Args:
      defaults: DoNotSchedule constraints of pods without their own. Only Services and workloads define what they
        select, so each pod of the namespace counts as matching.
    """

    def __init__(self, defaults: Sequence[TopologySpreadConstraint]) -> None:
        self._defaults = tuple(defaults)

    def events(self) -> Sequence[ClusterEventWithHint]:
        """Return the events with their hints."""
        moved = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
        removal = Action.DELETE | Action.UPDATE_POD_TERMINATING
        events = [
            ClusterEventWithHint.on(Resource.ASSIGNED_POD, Action.ADD | removal, self._counted),
            ClusterEventWithHint.on(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL, self._relabelled),
            ClusterEventWithHint.on(Resource.TARGET_POD, Action.UPDATE_POD_LABEL),
            ClusterEventWithHint.on(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION, self._tolerates),
            ClusterEventWithHint.on(Resource.NODE, moved, self._node_moved),
        ]
        if self._defaults:
            events += [ClusterEventWithHint.on(one, Action.ALL, self._selected) for one in WORKLOADS]
        return events

    def _constraints(self, pod: Pod) -> tuple[TopologySpreadConstraint, ...]:
        own = pod.spec.topology_spread_constraints
        if not own:
            return self._defaults
        return tuple(one for one in own if one.when_unsatisfiable == DO_NOT_SCHEDULE)

    def _matches(self, pod: Pod, other: Pod) -> tuple[bool, ...]:
        """Return, for each constraint, whether it counts another pod."""
        if other.namespace != pod.namespace:
            return ()
        if not pod.spec.topology_spread_constraints:
            return (True,) * len(self._defaults)
        matches = []
        for constraint in self._constraints(pod):
            selection = Selection(selectors_of(constraint, pod.labels))
            matches.append(not selection.empty and selection.matches_labels(other.labels))
        return tuple(matches)

    def _counted(self, pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
        return Hint.queue_if(any(any(self._matches(pod, one)) for one in (old, new) if one is not None))

    def _relabelled(self, pod: Pod, old: Pod, new: Pod) -> Hint:
        unknown = not pod.spec.topology_spread_constraints and bool(self._matches(pod, new))
        return Hint.queue_if(unknown or self._matches(pod, old) != self._matches(pod, new))

    def _tolerates(self, pod: Pod, _old: Pod, _new: Pod) -> Hint:
        return Hint.queue_if(any(one.node_taints_policy == HONOR for one in self._constraints(pod)))

    def _node_moved(self, pod: Pod, old: Node | None, new: Node | None) -> Hint:
        if old is None or new is None:
            node = new if old is None else old
            return Hint.queue_if(node is not None and self._place(pod, node) is not None)
        return Hint.queue_if(self._place(pod, old) != self._place(pod, new))

    def _place(self, pod: Pod, node: Node) -> Hashable:
        """Return the node's domains, and which constraints count the node.

        None if it lacks a key, so that none does.
        """
        constraints = self._constraints(pod)
        if any(one.topology_key not in node.labels for one in constraints):
            return None
        selected = selects_node(pod, node)
        open_ = not count_untolerated(node.taints, pod.tolerations, KEEPS_AWAY)
        return tuple(
            (
                node.labels[constraint.topology_key],
                (selected or constraint.node_affinity_policy not in (None, HONOR))
                and (open_ or constraint.node_taints_policy != HONOR),
            )
            for constraint in constraints
        )

    def _selected(self, pod: Pod, old: Selecting | None, new: Selecting | None) -> Hint:
        if pod.spec.topology_spread_constraints:
            return Hint.SKIP
        return Hint.queue_if(any(_namespace(one.metadata) == pod.namespace for one in (old, new) if one))


def _namespace(metadata: ObjectMeta) -> str:
    return metadata.namespace or "default"
