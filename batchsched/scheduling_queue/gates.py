"""PreEnqueue: whether an entity may enter the queue."""

from collections.abc import Mapping

from batchsched.errors import PluginError
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.scheduling_queue.entity import Entity


def plugins_that_gate(entity: Entity, pipelines: Mapping[str, Pipeline]) -> tuple[str, ...]:
    """Return the plugins that refuse all pods of an entity; empty if PreEnqueue admits at least one pod.

    A plugin that raises counts as refusing.
    """
    refusing: dict[str, None] = {}
    for pod in entity.pods.values():
        pipeline = pipelines.get(pod.spec.scheduler_name)
        if pipeline is None:
            return ()
        try:
            status = pipeline.preenqueue(pod)
        except PluginError as error:
            refusing[error.plugin] = None
            continue
        if status.ok:
            return ()
        refusing[status.plugin] = None
    return tuple(refusing)
