"""The binding cycle of one pod: PreBind, Bind, PostBind, in that order, on whatever loop the shell runs."""

from batchsched.framework.guard import awaited
from batchsched.framework.pipeline import Pipeline
from batchsched.framework.status import SKIP, SUCCESS, Code, Status
from batchsched.model.pod import Pod


async def bind(pipeline: Pipeline, pod: Pod, node: str) -> Status:
    """Take a pod that was allowed through the last points. The caller unreserves it when this does not succeed.

    Returns: Success; the refusal of a PreBind or Bind; Skip when no Bind plugin took the pod.

    Raises:
      PluginError: a plugin broke.
    """
    for prebind in pipeline.prebinds:
        status = await awaited(prebind, "PreBind", prebind.prebind(pod, node))
        if not status.ok:
            return status
    for binder in pipeline.binds:
        status = await awaited(binder, "Bind", binder.bind(pod, node))
        if status.code is Code.SKIP:
            continue
        if status.ok:
            for postbind in pipeline.postbinds:
                await awaited(postbind, "PostBind", postbind.postbind(pod, node))
            return SUCCESS
        return status
    return SKIP
