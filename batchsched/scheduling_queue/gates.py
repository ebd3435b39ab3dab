"""Gates: whether PreEnqueue lets an entity into the queue."""

from collections.abc import Mapping

from batchsched.errors import PluginError
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.scheduling_queue.entity import Entity


def gating(entity: Entity, pipelines: Mapping[str, Pipeline]) -> tuple[str, ...]:
    """Name the plugins that keep all pods of an entity out; one pod that is let in lets the entity in.

    A plugin that breaks keeps its pod out, as one that refuses does.
    """
    found: dict[str, None] = {}
    for pod in entity.pods.values():
        pipeline = pipelines.get(pod.spec.scheduler_name)
        if pipeline is None:
            return ()
        try:
            status = pipeline.preenqueue(pod)
        except PluginError as error:
            found[error.plugin] = None
            continue
        if status.ok:
            return ()
        found[status.plugin] = None
    return tuple(found)
