"""The binding cycle of one pod: PreBind, Bind, PostBind, in that order, on whatever loop the shell runs."""

from batchsched.errors import PluginError
from batchsched.framework import answers
from batchsched.framework.guard import awaited
from batchsched.framework.pipeline import Pipeline
from batchsched.framework.status import SKIP, Code, Status
from batchsched.model.pod import Pod


async def bind(pipeline: Pipeline, pod: Pod, node: str) -> Status:
    """Take a pod that was allowed through the last points. The caller unreserves it when this does not succeed.

    Returns: Success, with a sentence for each PostBind that broke, since the pod is bound all the same; the refusal
    of a PreBind or Bind; Skip when no Bind plugin took the pod.

    Raises:
      PluginError: a PreBind or a Bind broke.
    """
    for prebind in pipeline.prebinds:
        answer = await awaited(prebind, "PreBind", prebind.prebind, pod, node)
        status = answers.status(prebind, "PreBind", answer)
        if not status.ok:
            return answers.signed(status, prebind)
    for binder in pipeline.binds:
        status = answers.status(binder, "Bind", await awaited(binder, "Bind", binder.bind, pod, node))
        if status.code is Code.SKIP:
            continue
        if status.ok:
            return Status(reasons=await _tell(pipeline, pod, node))
        return answers.signed(status, binder)
    return SKIP


async def _tell(pipeline: Pipeline, pod: Pod, node: str) -> tuple[str, ...]:
    """Tell every PostBind; returns what broke: nothing that a bound pod could be taken back for."""
    broken: list[str] = []
    for postbind in pipeline.postbinds:
        try:
            await awaited(postbind, "PostBind", postbind.postbind, pod, node)
        except PluginError as error:
            broken.append(str(error))
    return tuple(broken)
