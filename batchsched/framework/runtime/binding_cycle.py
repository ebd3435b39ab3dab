"""Binding cycle of one pod: PreBind, Bind and PostBind, in this order."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from batchsched.api.core.pod import Pod
from batchsched.errors import PluginError
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.nodes.node_table import NodeTable, ReservedVolumesAndDevices
from batchsched.framework.runtime import result_validation as answers
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.plugin_call import await_plugin, call_plugin
from batchsched.framework.status import SKIP, SUCCESS, Code, Status
from batchsched.ports.cluster import Binder


@dataclass(frozen=True, slots=True)
class BindingCycleInput:
    """The node table, the API writer and the cycle state that plugins use while they bind placed pods.

    The pods of a gang that one session placed share one input.

    Args:
      node_table: the nodes.
      binder: writes to the API server.
      reserved_volumes_and_devices: what Reserve has reserved for the pods, to be read only. Sessions that run meanwhile
        change the table, but not this value.
      state: the state of the scheduling cycle; empty if that session has ended.
    """

    node_table: NodeTable
    binder: Binder
    reserved_volumes_and_devices: ReservedVolumesAndDevices = field(default_factory=ReservedVolumesAndDevices)
    state: CycleState = field(default_factory=CycleState)

    @classmethod
    def from_placed_pods(cls, pods: Sequence[Pod], table: NodeTable, binder: Binder) -> Self:
        """Create the input of the binding cycles of placed pods. Call it before the next session begins."""
        return cls(table, binder, table.reserved_volumes_and_devices.copy_for_pods(pods))


async def run_binding_cycle(pipeline: Pipeline, pod: Pod, node: str, cycle: BindingCycleInput) -> Status:
    """Call the PreBind, Bind and PostBind plugins for a pod that Permit has allowed.

    The caller calls `unreserve_after_session` if the pod is not bound. This function does not, because binding runs
    while sessions decide, and plugins must not change during a session.

    Returns:
      Success, with a message for each failed PostBind, because the pod is bound; or the refusal of a PreBind or
      Bind; or Skip if no Bind plugin bound the pod.

    Raises:
      PluginError: a PreBind or a Bind plugin failed.
    """
    status = await run_prebind(pipeline, pod, node, cycle)
    return await run_bind_and_postbind(pipeline, pod, node, cycle) if status.ok else status


def may_need_prebind_undo(pipeline: Pipeline, pods: Sequence[Pod], cycle: BindingCycleInput) -> bool:
    """Return whether a PreBind plugin writes something for these pods that must be undone if they are not bound.

    Raises:
      PluginError: a plugin failed.
    """
    for plugin in pipeline.reversible_prebinds:
        for pod in pods:
            answer = call_plugin(plugin, "PreBind", plugin.writes_in_prebind, pod, cycle.node_table)
            if answers.checked_bool(plugin, "PreBind", answer):
                return True
    return False


async def run_prebind(pipeline: Pipeline, pod: Pod, node: str, cycle: BindingCycleInput) -> Status:
    """Call the PreBind plugins for a pod until one refuses it; return the refusal, or Success.

    Raises:
      PluginError: a PreBind plugin failed.
    """
    for prebind in pipeline.prebinds:
        answer = await await_plugin(prebind, "PreBind", prebind.prebind, pod, node, cycle)
        status = answers.checked_status(prebind, "PreBind", answer)
        if not status.ok:
            return answers.status_with_plugin_name(status, prebind)
    return SUCCESS


async def undo_prebind(pipeline: Pipeline, pod: Pod, node: str, cycle: BindingCycleInput) -> tuple[str, ...]:
    """Undo what PreBind plugins wrote for a pod that is not bound, and return the errors of failed plugins."""
    broken: list[str] = []
    for prebind in pipeline.reversible_prebinds:
        try:
            await await_plugin(prebind, "PreBind", prebind.undo_prebind, pod, node, cycle)
        except PluginError as error:
            broken.append(str(error))
    return tuple(broken)


async def run_bind_and_postbind(pipeline: Pipeline, pod: Pod, node: str, cycle: BindingCycleInput) -> Status:
    """Bind a pod through an extender or a Bind plugin, and then call the PostBind plugins.

    If no extender binds the pod, the Bind plugins are called until one does not return Skip. If the pod is not bound,
    PostBind is not called.

    Returns:
      As `run_binding_cycle`.

    Raises:
      PluginError: a Bind plugin failed.
    """
    status = await _bound(pipeline, pod, node, cycle)
    if status.code is not Code.SUCCESS:
        return status
    return Status(reasons=await _tell(pipeline, pod, node))


async def _bound(pipeline: Pipeline, pod: Pod, node: str, cycle: BindingCycleInput) -> Status:
    # An extender with the bind verb replaces the Bind plugins for its pods, as in kube-scheduler.
    if await pipeline.extenders.bind(pod, node):
        return SUCCESS
    for binder in pipeline.binds:
        answer = await await_plugin(binder, "Bind", binder.bind, pod, node, cycle)
        status = answers.checked_status(binder, "Bind", answer)
        if status.code is not Code.SKIP:
            return answers.status_with_plugin_name(status, binder)
    return SKIP


def unreserve_after_session(pipeline: Pipeline, pod: Pod, node: str, table: NodeTable) -> tuple[str, ...]:
    """Call Unreserve of all plugins for a pod after the session that placed the pod has ended.

    The plugins get an empty cycle state.

    Returns:
      The errors of failed plugins. What was reserved for the pod is released in any case.
    """
    index = table.index.get(node)
    if index is None:  # the node is gone, and with it what was kept there
        return ()
    try:
        pipeline.unreserve(pod, index, table, CycleState())
    except PluginError as error:
        return (str(error),)
    return ()


async def _tell(pipeline: Pipeline, pod: Pod, node: str) -> tuple[str, ...]:
    """Call every PostBind and return the errors. The pod stays bound."""
    broken: list[str] = []
    for postbind in pipeline.postbinds:
        try:
            # The pod is bound: an error must not keep later PostBind plugins from their notification.
            await await_plugin(postbind, "PostBind", postbind.postbind, pod, node)
        except PluginError as error:
            broken.append(str(error))
    return tuple(broken)
