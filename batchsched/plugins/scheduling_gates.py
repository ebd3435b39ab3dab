"""SchedulingGates: a pod with a scheduling gate does not enter the scheduling queue."""

from collections.abc import Hashable, Sequence
from typing import ClassVar

from typing_extensions import override

from batchsched.api.core.pod import Pod
from batchsched.framework.events import Action, ClusterEventWithHint, EventResource, always_queue
from batchsched.framework.interface import EnqueueExtensionsPlugin, PreEnqueuePlugin, SignaturePlugin
from batchsched.framework.status import SUCCESS, Code, Status
from batchsched.framework.traits import PluginTraits


class SchedulingGates(SignaturePlugin, PreEnqueuePlugin, EnqueueExtensionsPlugin):
    """Keeps pods with scheduling gates out of the scheduling queue.

    Source: kube-scheduler's plugins/schedulinggates.
    """

    name: ClassVar[str] = "SchedulingGates"
    traits: ClassVar[PluginTraits] = PluginTraits(preenqueue_reads_spec_only=True)

    @override
    def signature(self, pod: Pod) -> Hashable:
        return pod.spec.scheduling_gates or ()

    @override
    def preenqueue(self, pod: Pod) -> Status:
        gates = pod.spec.scheduling_gates
        if not gates:
            return SUCCESS
        named = " ".join(gate.name for gate in gates)
        return Status(Code.UNRESOLVABLE, (f"waiting for scheduling gates: [{named}]",))

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        eliminated = Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED
        return (ClusterEventWithHint.for_events(EventResource.TARGET_POD, eliminated, always_queue),)
