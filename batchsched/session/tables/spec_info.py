"""What a session needs to know of a pod's spec, worked out once for each spec.

Pods of one template share one decoded spec object, so that 32,000 pods cost a few dozen evaluations. A bound pod
whose resources were changed in place has a status of its own, and is read by itself.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import Pod, PodSpec
from batchsched.api.core.requests import nonzero_requests, requests, resized
from batchsched.errors import PluginError
from batchsched.framework.plugin_support.default_selectors import controller_of
from batchsched.framework.runtime.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class PodSpecInfo:
    """What follows from a spec alone.

    Args:
      spec: kept, so that its identity stays its own.
      requests: by resource, in base units.
      nonzero: milli-CPU and bytes for scoring.
      signature: a number; equal numbers mean that no plugin sees a difference.
      label_keys: labels, on any pod, that the pod's selectors read.
      failure: what broke over the spec, None when nothing did; such pods are like no others, and are refused.
    """

    spec: PodSpec
    requests: dict[str, int]
    nonzero: tuple[int, int]
    signature: int
    label_keys: frozenset[str]
    failure: PluginError | None = None


class PodSpecIndex:
    """The facts of all specs that were seen."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._facts: dict[Hashable, PodSpecInfo] = {}
        self._signatures: dict[object, int] = {}
        self.failing = False
        """Some plugin broke over a spec."""

    def of(self, pod: Pod) -> PodSpecInfo:
        """Return the facts of a pod's spec; requests do not count what was resized in place.

        Raises:
          InvalidQuantity: an amount that is no quantity.
        """
        key = spec_key(pod)
        known = self._facts.get(key)
        if known is None:
            failures: list[PluginError] = []
            known = PodSpecInfo(
                pod.spec,
                requests(pod),
                nonzero_requests(pod),
                self._signature(pod, failures),
                self._pipeline.label_keys(pod, failures),
                failures[0] if failures else None,
            )
            self._facts[key] = known
            self.failing |= known.failure is not None
        return known

    def _signature(self, pod: Pod, failures: list[PluginError]) -> int:
        signature: object = ("broken", len(self._facts))
        try:
            signature = self._pipeline.signature(pod)
        except PluginError as error:
            failures.append(error)
        return self._signatures.setdefault(signature, len(self._signatures))

    def requests(self, pod: Pod) -> dict[str, int]:
        """Return what a pod counts for on its node now, in-place changes included."""
        return requests(pod) if resized(pod) else self.of(pod).requests

    def nonzero(self, pod: Pod) -> tuple[int, int]:
        """Return what a pod counts for in scoring, in-place changes included."""
        return nonzero_requests(pod) if resized(pod) else self.of(pod).nonzero


def has_own_volume(pod: Pod) -> bool:
    """Tell whether a volume is made for the pod alone."""
    volumes = pod.spec.volumes
    return any(volume.ephemeral for volume in volumes) if volumes else False


def spec_key(pod: Pod) -> Hashable:
    """What plugins read of a pod beside its labels: its spec, which many may share, and what tells those apart."""
    owner = controller_of(pod)
    own = (pod.key, pod.metadata.uid) if has_own_volume(pod) else None
    return id(pod.spec) if owner is None and own is None else (id(pod.spec), owner, own)


def same_template(pod: Pod, other: Pod) -> bool:
    """Tell whether pods share a spec, and what their metadata says of more than one pod."""
    mine, its = pod.metadata, other.metadata
    return (
        pod.spec is other.spec
        and mine.labels == its.labels
        and mine.annotations == its.annotations
        and mine.owner_references == its.owner_references
        and not has_own_volume(pod)
    )


def representative_pod(pod: Pod, seen: tuple[tuple[str, str | None], ...]) -> Pod:
    """Return what equal pods of several gangs have in common.

    No name: the gang of the first of them may end while the class lives on. Of labels those that a selector reads, and
    of owners the one whose selector counts.
    """
    labels = {key: value for key, value in seen if value is not None}
    owner = controller_of(pod)
    metadata = ObjectMeta(
        namespace=pod.metadata.namespace,
        labels=labels or None,
        owner_references=None if owner is None else (owner,),
    )
    return Pod(metadata=metadata, spec=pod.spec)
