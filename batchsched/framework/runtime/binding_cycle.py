"""The binding cycle of one pod: PreBind, Bind, PostBind, in that order, on whatever loop the shell runs."""

from dataclasses import dataclass, field

from batchsched.api.core.pod import Pod
from batchsched.errors import PluginError
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.runtime import result_validation as answers
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.plugin_call import awaited
from batchsched.framework.status import SKIP, SUCCESS, Code, Status
from batchsched.ports.binder import Binder


@dataclass(frozen=True, slots=True)
class BindingCycle:
    """What plugins have in a binding cycle.

    Args:
      table: the nodes, with what Reserve promised the pod.
      binder: writes.
      state: what plugins kept of the scheduling cycle; empty where it is over and gone.
    """

    table: NodeTable
    binder: Binder
    state: CycleState = field(default_factory=CycleState)


async def bind(pipeline: Pipeline, pod: Pod, node: str, cycle: BindingCycle) -> Status:
    """Take a pod that was allowed through the last points.

    Whoever calls unreserves a pod that is not bound; not here, since pods are bound while sessions are decided, and
    plugins must not change then.

    Returns: Success, with a sentence for each PostBind that broke, since the pod is bound all the same; the refusal
    of a PreBind or Bind; Skip when no Bind plugin took the pod.

    Raises:
      PluginError: a PreBind or a Bind broke.
    """
    status = await _bound(pipeline, pod, node, cycle)
    if status.code is not Code.SUCCESS:
        return status
    return Status(reasons=await _tell(pipeline, pod, node))


async def _bound(pipeline: Pipeline, pod: Pod, node: str, cycle: BindingCycle) -> Status:
    """Ask every PreBind, and Bind plugins until one does not skip."""
    for prebind in pipeline.prebinds:
        answer = await awaited(prebind, "PreBind", prebind.prebind, pod, node, cycle)
        status = answers.status(prebind, "PreBind", answer)
        if not status.ok:
            return answers.signed(status, prebind)
    if await pipeline.extenders.bind(pod, node):
        return SUCCESS
    for binder in pipeline.binds:
        answer = await awaited(binder, "Bind", binder.bind, pod, node, cycle)
        status = answers.status(binder, "Bind", answer)
        if status.code is not Code.SKIP:
            return answers.signed(status, binder)
    return SKIP


def unreserve(pipeline: Pipeline, pod: Pod, node: str, table: NodeTable) -> tuple[str, ...]:
    """Give back what was reserved for a pod at every plugin, in a cycle of its own, since that of the session is over.

    Returns: what broke, which helps nobody to keep the place.
    """
    at = table.index.get(node)
    if at is None:  # the node is gone, and with it what was kept there
        return ()
    try:
        pipeline.unreserve(pod, at, table, CycleState())
    except PluginError as error:
        return (str(error),)
    return ()


async def _tell(pipeline: Pipeline, pod: Pod, node: str) -> tuple[str, ...]:
    """Tell every PostBind; returns what broke: nothing that a bound pod could be taken back for."""
    broken: list[str] = []
    for postbind in pipeline.postbinds:
        try:
            await awaited(postbind, "PostBind", postbind.postbind, pod, node)
        except PluginError as error:
            broken.append(str(error))
    return tuple(broken)
