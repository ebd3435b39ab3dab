"""GangScheduling: no pod of a gang is bound before the minimum of the gang is placed.

PreFilter refuses a gang with too few pods, so that it reserves nothing. Permit makes a pod wait until the bound and
assumed pods reach minMember, and every subGroup its own minimum; then all of them are allowed. If one pod is
unreserved, the session rolls the gang back and updates the counts.
"""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

from batchsched.api.core.pod import POD_GROUP_LABEL, Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.events import Action, ClusterEventWithHint, EventResource, Hint, always_queue
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import SKIP_FILTER, SUCCESS, Code, PermitAnswer, PreFilterAnswer, Status
from batchsched.framework.traits import PluginTraits

NOT_ENOUGH = "{existing} of the {minimum} pods that the gang needs exist"
NOT_ENOUGH_SUB = "{existing} of the {minimum} pods that subGroup {name} needs exist"


class GangScheduling:
    """Makes Permit all-or-nothing for PodGroups: a pod waits until its gang's minimum of pods is placed.

    A single pod is a gang of one.
    """

    name: ClassVar[str] = "GangScheduling"
    traits: ClassVar[PluginTraits] = PluginTraits(reads_priority=False, permit_is_per_gang=True)

    def signature(self, pod: Pod) -> Hashable:
        """Return None, the same signature for all pods, because the plugin does not read a pod's spec."""
        return None

    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        """Refuse a pod if its gang has fewer pods than minMember, or a subgroup has fewer than its minimum.

        There is no Filter to prepare.
        """
        gang = nodes.table.gang_of(pod.pod)
        if gang is None or gang.has_enough_pods:
            return SKIP_FILTER
        if gang.existing < gang.minimum:
            reason = NOT_ENOUGH.format(existing=gang.existing, minimum=gang.minimum)
        else:
            name, least = gang.first_subgroup_below_minimum()
            reason = NOT_ENOUGH_SUB.format(existing=gang.sub_existing.get(name, 0), minimum=least, name=name)
        return PreFilterAnswer(Status(Code.UNRESOLVABLE, (reason,)))

    def reserve(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> Status:
        """Return Success without keeping state: the session counts the reserved pods."""
        return SUCCESS

    def reserves_nothing(self, pod: PodClass, nodes: NodeTable) -> bool:
        """Return True, because Reserve keeps no state: the session counts the reserved pods."""
        return True

    def unreserve(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        """Do nothing, because the session itself updates the number of placed pods that Permit reads."""

    def permit(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> PermitAnswer:
        """Make a pod wait until enough pods of its gang are placed, then allow all waiting pods of the gang."""
        gang = nodes.gang_of(pod)
        if gang is None or gang.has_minimum_placed:
            if gang is not None:
                nodes.waiting.allow_gang(gang.key, self.name)
            return _GO
        return PermitAnswer(_WAIT, gang.timeout_seconds)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the cluster events that may complete a gang, each with its queueing hint.

        These events are a new pod of the gang, changed labels of the refused pod, and a new or changed PodGroup.
        """
        return (
            ClusterEventWithHint.for_events(EventResource.UNSCHEDULED_POD, Action.ADD, _member_came),
            ClusterEventWithHint.for_events(EventResource.ASSIGNED_POD, Action.ADD, _member_came),
            ClusterEventWithHint.for_events(EventResource.TARGET_POD, Action.UPDATE_POD_LABEL, always_queue),
            ClusterEventWithHint.for_events(
                EventResource.POD_GROUP, Action.ADD | Action.UPDATE, _group_stated
            ),
        )


_GO: Final = PermitAnswer()
_WAIT: Final = Status(Code.WAIT, plugin=GangScheduling.name)


def _member_came(pod: Pod, _old: None, new: Pod) -> Hint:
    group = pod.metadata.label(POD_GROUP_LABEL)
    return Hint.queue_if(
        group is not None and group == new.metadata.label(POD_GROUP_LABEL) and pod.namespace == new.namespace
    )


def _minimums(group: PodGroup) -> Hashable:
    return group.spec.min_member, group.spec.min_sub_groups, group.spec.sub_groups


def _group_stated(pod: Pod, old: PodGroup | None, new: PodGroup) -> Hint:
    changed = old is None or _minimums(old) != _minimums(new)
    is_own_group = (pod.namespace, pod.metadata.label(POD_GROUP_LABEL)) == (new.namespace, new.name)
    return Hint.queue_if(changed and is_own_group)
