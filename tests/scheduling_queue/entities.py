"""Queues, pods and plugins for tests of the scheduling queue."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from batchsched.api.core.pod import POD_GROUP_LABEL, Pod
from batchsched.api.crd.podgroup import PodGroup
from batchsched.config.schema import Profile
from batchsched.framework.events import ClusterEventWithHint, Hint
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.registry import standard_registry
from batchsched.scheduling_queue.entity import Entity, QueueState
from batchsched.scheduling_queue.queue import SchedulingQueue

NAME = "batchsched"


def pod(name: str, gang: str = "", labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    """A pod of this scheduler; `spec` as in a manifest."""
    member = {POD_GROUP_LABEL: gang} if gang else {}
    content = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "labels": member | (labels or {}),
        },
        "spec": {"schedulerName": NAME, "containers": [{"name": "c"}], **spec},
    }
    return msgspec.convert(content, Pod)


def group(name: str, minimum: int = 1, **spec: Any) -> PodGroup:
    """A PodGroup."""
    return PodGroup.model_validate(
        {"metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": minimum, **spec}}
    )


def standard_pipeline() -> Pipeline:
    """The default plugins."""
    return standard_registry().create_pipeline(Profile())


def queue(*plugins: object, pipeline: Pipeline | None = None) -> SchedulingQueue:
    """A queue with these plugins alone, or with a pipeline."""
    return SchedulingQueue(pipeline or Pipeline(plugins))


class Listening:
    """A plugin that registers some events."""

    def __init__(self, name: str, *events: ClusterEventWithHint) -> None:
        self.name = name
        self._events = events

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return self._events


class Silent:
    """A plugin that registers no events."""

    def __init__(self, name: str) -> None:
        self.name = name


def says(answer: Hint | Callable[[Pod, Any, Any], Hint], seen: list[Any] | None = None) -> Any:
    """A hint with a fixed answer, which records its calls."""

    def hint(one: Pod, old: Any, new: Any) -> Hint:
        if seen is not None:
            seen.append((one.name, old, new))
        return answer if isinstance(answer, Hint) else answer(one, old, new)

    return hint


def popped(made: SchedulingQueue, now: float) -> Entity:
    """The next entity, which is there."""
    entity = made.pop(now)
    assert entity is not None
    return entity


def known(made: SchedulingQueue, identity: str) -> Entity:
    """An entity of the queue, by the name of its pod or, with a slash, by its identity."""
    entity = made.find_entity(identity if "/" in identity else f"pod/default/{identity}")
    assert entity is not None
    return entity


def place(made: SchedulingQueue, identity: str) -> QueueState:
    """Where an entity is."""
    return known(made, identity).place


def names(pods: Iterable[Pod]) -> list[str]:
    """The names of pods."""
    return [one.name for one in pods]
