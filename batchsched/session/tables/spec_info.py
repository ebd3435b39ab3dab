"""What follows from a pod's spec alone, computed once for each spec.

Pods of one template share one decoded spec object: 32,000 pods cost a few dozen evaluations. A bound pod that was
resized in place requests what its status says, so its requests are computed for itself.
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
    """What follows from one spec.

    Args:
      spec: the spec; the reference keeps its id from being used again.
      requests: requests by resource, in base units.
      nonzero: milli-CPU and bytes for scoring, with defaults for what is not requested.
      signature: equal numbers mean that no plugin can tell the specs apart.
      label_keys: labels of any pod that the spec's selectors read.
      failure: the failure of a plugin over the spec, None for none. Its pods share no class and are refused.
    """

    spec: PodSpec
    requests: dict[str, int]
    nonzero: tuple[int, int]
    signature: int
    label_keys: frozenset[str]
    failure: PluginError | None = None


class PodSpecIndex:
    """Infos of all specs that were seen; they are never dropped, so the tables are rebuilt from time to time."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._infos: dict[Hashable, PodSpecInfo] = {}
        self._signatures: dict[object, int] = {}
        self.failing = False
        """True if a plugin failed over some spec."""

    def of(self, pod: Pod) -> PodSpecInfo:
        """Return the info of a pod's spec; its requests do not include in-place resizes.

        Raises:
          InvalidQuantity: the spec has an amount that is no quantity.
        """
        key = spec_key(pod)
        info = self._infos.get(key)
        if info is None:
            failures: list[PluginError] = []
            info = PodSpecInfo(
                pod.spec,
                requests(pod),
                nonzero_requests(pod),
                self._signature(pod, failures),
                self._pipeline.label_keys(pod, failures),
                failures[0] if failures else None,
            )
            self._infos[key] = info
            self.failing |= info.failure is not None
        return info

    def _signature(self, pod: Pod, failures: list[PluginError]) -> int:
        # Each failing spec gets a signature of its own, so that its pods share no class with others.
        signature: object = ("failed", len(self._infos))
        try:
            signature = self._pipeline.signature(pod)
        except PluginError as error:
            failures.append(error)
        return self._signatures.setdefault(signature, len(self._signatures))

    def requests(self, pod: Pod) -> dict[str, int]:
        """Return what a pod requests on its node now, including in-place resizes."""
        return requests(pod) if resized(pod) else self.of(pod).requests

    def nonzero(self, pod: Pod) -> tuple[int, int]:
        """Return milli-CPU and bytes of a pod for scoring, including in-place resizes."""
        return nonzero_requests(pod) if resized(pod) else self.of(pod).nonzero


def has_own_volume(pod: Pod) -> bool:
    """Return whether the pod has an ephemeral volume, which is made for this pod alone."""
    volumes = pod.spec.volumes
    return any(volume.ephemeral for volume in volumes) if volumes else False


def spec_key(pod: Pod) -> Hashable:
    """Return a key of what plugins read of a pod besides labels: spec, controller, and the name if it matters."""
    controller = controller_of(pod)
    own_name = (pod.key, pod.metadata.uid) if has_own_volume(pod) else None
    if controller is None and own_name is None:
        return id(pod.spec)
    return id(pod.spec), controller, own_name


def same_template(pod: Pod, other: Pod) -> bool:
    """Return whether two pods differ in nothing but their names, as pods of one template do."""
    metadata, other_metadata = pod.metadata, other.metadata
    return (
        pod.spec is other.spec
        and metadata.labels == other_metadata.labels
        and metadata.annotations == other_metadata.annotations
        and metadata.owner_references == other_metadata.owner_references
        and not has_own_volume(pod)
    )


def representative_pod(pod: Pod, visible_metadata: tuple[tuple[str, str | None], ...]) -> Pod:
    """Return a nameless pod with what all pods of a class have in common.

    It has no name because the class may outlive the gang of its first pod. It keeps the labels that selectors read, and
    the controller: its selector counts for default spreading.
    """
    labels = {key: value for key, value in visible_metadata if value is not None}
    controller = controller_of(pod)
    metadata = ObjectMeta(
        namespace=pod.metadata.namespace,
        labels=labels or None,
        owner_references=None if controller is None else (controller,),
    )
    return Pod(metadata=metadata, spec=pod.spec)
