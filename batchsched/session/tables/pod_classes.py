"""Pod classes of a session: groups of pods that no plugin can tell apart, and the requests of the pods."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import SUB_GROUP_LABEL, Pod, PodSpec, PodStatus
from batchsched.api.core.pod_field_limits import describe_exceeded_field_limit
from batchsched.api.core.requests import (
    describe_exceeded_request_limit,
    nonzero_requests,
    pod_and_nonzero_requests,
    pod_requests,
    status_may_override_requests,
)
from batchsched.api.gang import gang_identity
from batchsched.api.priority import PriorityTable
from batchsched.api.snapshot import Snapshot
from batchsched.api.unsupported_fields import describe_unsupported_pod_spec_field
from batchsched.errors import InvalidQuantity, PluginError
from batchsched.framework.plugin_support.default_selectors import find_controller_with_pod_selector
from batchsched.framework.pod_class import PodClass
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.status import IntArray
from batchsched.session.tables.claim_states import ClaimStates
from batchsched.session.tables.gang import GangPart, GangState, PodCountsByGang

NO_SIGNATURE: Final = -1
"""The signature of a spec that belongs to no pod class: it is invalid, or names the node of its pod."""


@dataclass(frozen=True, slots=True)
class PodSpecInfo:
    """The values that are computed once for all pods with the same spec, such as their requests.

    Args:
      spec: the spec; the reference keeps its id from being used again.
      requests: requests by resource, in base units.
      nonzero: milli-CPU and bytes for scoring, with defaults for what is not requested.
      signature: equal numbers mean that no plugin can tell the specs apart; `NO_SIGNATURE` for the spec of a bound
        pod.
      selector_label_keys: labels of any pod that the spec's selectors read.
      failure: the failure of a plugin over the spec, None for none. Its pods share no class and are refused.
      exceeded_limit: the limit of pods that the spec exceeds, as a sentence, "" for none. No requests and no labels
        are read of such a spec, and its pods are refused.
      unsupported_field: the field of the spec that batchsched does not support, as a sentence, "" for none. Its pods
        are refused.
    """

    spec: PodSpec
    requests: dict[str, int]
    nonzero: tuple[int, int]
    signature: int
    selector_label_keys: frozenset[str]
    failure: PluginError | None = None
    exceeded_limit: str = ""
    unsupported_field: str = ""

    @property
    def is_refused(self) -> bool:
        """Whether pods with this spec are always refused, because the spec is invalid or not supported."""
        return self.failure is not None or bool(self.exceeded_limit or self.unsupported_field)


class PodSpecIndex:
    """The `PodSpecInfo` (requests, signature, label keys) of each pod spec seen so far.

    No entry is removed, so `UpToDateScheduler` has the tables rebuilt after a number of changes or bytes of new specs.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._infos: dict[Hashable, PodSpecInfo] = {}
        self._signatures: dict[object, int] = {}
        self.has_refused_specs = False
        """True if some spec is refused."""

    def spec_info_of(self, pod: Pod) -> PodSpecInfo:
        """Return the values computed from a pod's spec; the requests do not include in-place resizes.

        Raises:
          InvalidQuantity: the spec has an amount that is no quantity.
        """
        key = spec_key(pod)
        info = self._infos.get(key)
        if info is None:
            info = self._infos[key] = self._new_info(pod)
            self.has_refused_specs |= info.is_refused
        return info

    def spec_number_of(self, pod: Pod) -> int:
        """Return a number for the spec of a pending pod; specs that no plugin can distinguish have the same number.

        If the spec is invalid, return `NO_SIGNATURE`.
        """
        try:
            return self.spec_info_of(pod).signature
        except InvalidQuantity:
            return NO_SIGNATURE

    def _new_info(self, pod: Pod) -> PodSpecInfo:
        if status_may_override_requests(pod):
            # Other pods have the same spec and are not resized.
            pod = msgspec.structs.replace(pod, status=PodStatus())
        # Pods that are on a node use it, and may keep others off it, whatever their specs cost.
        exceeded_limit = "" if pod.node_name else describe_exceeded_field_limit(pod.spec)
        if exceeded_limit:
            return self._info_of_exceeded_limit(pod.spec, exceeded_limit)
        requests, nonzero = pod_and_nonzero_requests(pod)
        exceeded_limit = "" if pod.node_name else describe_exceeded_request_limit(requests)
        if exceeded_limit:
            return self._info_of_exceeded_limit(pod.spec, exceeded_limit)
        failures: list[PluginError] = []
        return PodSpecInfo(
            pod.spec,
            requests,
            nonzero,
            # Only pending pods have classes. Each bound pod has a spec of its own, which names its node.
            NO_SIGNATURE if pod.node_name else self._signature(pod, failures),
            self._pipeline.selector_label_keys(pod, failures),
            failures[0] if failures else None,
            unsupported_field=""
            if pod.node_name
            else describe_unsupported_pod_spec_field(
                pod.spec, allocates_devices=self._pipeline.allocates_devices
            ),
        )

    def _info_of_exceeded_limit(self, spec: PodSpec, exceeded_limit: str) -> PodSpecInfo:
        signature = self._signatures.setdefault("exceeds a limit", len(self._signatures))
        return PodSpecInfo(spec, {}, (0, 0), signature, frozenset(), exceeded_limit=exceeded_limit)

    def _signature(self, pod: Pod, failures: list[PluginError]) -> int:
        # Each failing spec gets a signature of its own, so that its pods share no class with others.
        signature: object = ("failed", len(self._infos))
        try:
            signature = self._pipeline.signature(pod)
        except PluginError as error:
            failures.append(error)
        return self._signatures.setdefault(signature, len(self._signatures))

    def requests_of(self, pod: Pod) -> dict[str, int]:
        """Return the present requests of a pod by resource, including in-place resizes."""
        if not status_may_override_requests(pod):
            return self.spec_info_of(pod).requests
        return pod_requests(pod, self._pipeline.release.resized_request_rule)

    def nonzero_requests(self, pod: Pod) -> tuple[int, int]:
        """Return a pod's requests for scoring (milli-CPU, and bytes of memory), including in-place resizes."""
        if not status_may_override_requests(pod):
            return self.spec_info_of(pod).nonzero
        return nonzero_requests(pod, self._pipeline.release.resized_request_rule)


def has_ephemeral_volume(pod: Pod) -> bool:
    """Return True if a pod has an ephemeral volume, which is made for this pod alone."""
    volumes = pod.spec.volumes
    return any(volume.ephemeral for volume in volumes) if volumes else False


def spec_key(pod: Pod) -> Hashable:
    """Return a hashable key of a pod; plugins can distinguish pods with equal keys only by their labels.

    It contains the spec, the controller and, for a pod with an ephemeral volume, its name.
    """
    controller = find_controller_with_pod_selector(pod)
    own_name = (pod.key, pod.metadata.uid) if has_ephemeral_volume(pod) else None
    if controller is None and own_name is None:
        return id(pod.spec)
    return id(pod.spec), controller, own_name


def differ_only_in_names(pod: Pod, other: Pod) -> bool:
    """Return True if two pods differ only in their names, like pods that were created from one template."""
    metadata, other_metadata = pod.metadata, other.metadata
    return (
        pod.spec is other.spec
        and metadata.labels == other_metadata.labels
        and metadata.annotations == other_metadata.annotations
        and metadata.owner_references == other_metadata.owner_references
        and not has_ephemeral_volume(pod)
        and not pod.spec.resource_claims
    )


def build_representative_pod(pod: Pod, visible_metadata: tuple[tuple[str, str], ...]) -> Pod:
    """Return a pod without a name, with the fields that all pods of a pod class have in common.

    It has no name because the class may outlive the gang of its first pod. It keeps the labels that selectors read, and
    the controller: its selector counts for default spreading.
    """
    labels = dict(visible_metadata)
    controller = find_controller_with_pod_selector(pod)
    metadata = ObjectMeta(
        namespace=pod.metadata.namespace,
        labels=labels or None,
        owner_references=None if controller is None else (controller,),
    )
    return Pod(metadata=metadata, spec=pod.spec)


_MAX_RANK_DIGITS: Final = 9


def sort_by_rank(pods: Sequence[Pod], rank_label: str) -> list[Pod]:
    """Return pods sorted by the rank in a label; pods without a number in this label come last."""

    def rank_of_pod(pod: Pod) -> float:
        value = pod.labels.get(rank_label, "")
        is_number = value.isascii() and value.isdigit() and len(value) <= _MAX_RANK_DIGITS
        return int(value) if is_number else math.inf

    return sorted(pods, key=rank_of_pod)


class PodClassTable:
    """The pod classes of a session, created on first use.

    Args:
      snapshot: states the priority classes.
      pipeline: the profile's plugins; they say what they read of a pod.
      specs: the `PodSpecInfo` of each pod spec.
      columns: column of each resource in request vectors; 0 is the pod count.
      counts: how many pods each gang has.
      selector_label_keys: labels that some selector in the Snapshot reads; None if a plugin failed to say, so that
        pods with different labels are never one class.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        pipeline: Pipeline,
        specs: PodSpecIndex,
        columns: Mapping[str, int],
        counts: PodCountsByGang,
        selector_label_keys: frozenset[str] | None,
    ) -> None:
        self._pipeline = pipeline
        self._specs = specs
        self._columns = columns
        self._counts = counts
        self.priorities = PriorityTable(snapshot.priority_classes)
        """Gives pods and gangs their priority."""
        self.claim_states = ClaimStates(snapshot.resource_claims)
        """Compares the ResourceClaims of pods."""
        self._reads_all_labels = selector_label_keys is None
        self._label_keys = set(selector_label_keys or ())
        self._classes: dict[object, PodClass] = {}
        self._represented_classes: dict[str, set[object]] = {}
        """Pod or ResourceClaim → keys in `_classes` of the classes with claims that this pod or its user represents."""
        self._forgotten_classes: list[PodClass] = []
        self._first_of_kind: dict[object, PodClass] = {}
        """The first of the classes that differ in priority alone; plugins are asked about that one only."""
        self._request_vectors: dict[int, tuple[IntArray, IntArray]] = {}
        self._recorded_specs: set[int] = set()
        """The ids of the specs with recorded label keys; `PodSpecIndex` keeps these specs alive."""

    def record_selector_label_keys(self, pod: Pod) -> bool:
        """Record the label keys that a new pod's selectors read.

        Return True if that invalidates all existing pod classes.

        Once a selector reads a label, pods with different values of that label are in different classes.
        """
        if id(pod.spec) in self._recorded_specs:
            return False
        # Classes are kept across sessions, so a label that nothing read before may have been left out of them.
        info = self._specs.spec_info_of(pod)
        self._recorded_specs.add(id(info.spec))
        if info.selector_label_keys <= self._label_keys:
            return False
        self._label_keys |= info.selector_label_keys
        self._classes.clear()
        self._first_of_kind.clear()
        self._represented_classes.clear()
        return True

    def request_vector(self, pod: Pod) -> IntArray:
        """Return a pod's requests as an array by resource [R]; entry 0, the resource `pods`, is 1."""
        return self.requests_and_nonzero_requests(pod)[0]

    def requests_and_nonzero_requests(self, pod: Pod) -> tuple[IntArray, IntArray]:
        """Return a pod's requests as an array by resource [R], and the cpu and memory requests for scoring.

        In the first array, entry 0, the resource `pods`, is 1. The second array holds milli-CPU and bytes of memory,
        with the defaults of kube-scheduler for containers without requests.
        """
        # By identity of the spec: `PodSpecIndex` keeps the spec alive, so its id is not used again.
        cached = self._request_vectors.get(id(pod.spec))
        if cached is not None and not status_may_override_requests(pod):
            return cached
        info = self._specs.spec_info_of(pod)
        requests = np.zeros(len(self._columns), np.int64)
        requests[0] = 1
        for resource, amount in self._specs.requests_of(pod).items():
            # No node offers a resource without a column; `GangEligibilityCheck` refuses pending pods that request it.
            if resource in self._columns:
                requests[self._columns[resource]] += amount
        vectors = (requests, np.asarray(self._specs.nonzero_requests(pod), np.int64))
        # A pod that was resized in place requests something else than its spec says.
        if not status_may_override_requests(pod):
            self._request_vectors[id(info.spec)] = vectors
        return vectors

    def pod_class_of(self, pod: Pod, priority: int) -> PodClass:
        """Return the pod class of a pod; pods that no plugin can distinguish share a class."""
        info = self._specs.spec_info_of(pod)
        visible_metadata, own_gang = self._visible_metadata(pod), self._own_gang(pod)
        kind = (
            pod.metadata.namespace,
            info.signature,
            visible_metadata,
            self.claim_states.claim_state_key(pod),
        )
        identity = (*kind, priority, own_gang)
        pod_class = self._classes.get(identity)
        if pod_class is None:
            requests = self.request_vector(pod)
            # Where a plugin or an extender may read anything, it gets a real pod; otherwise one without a name, so
            # that no plugin can depend on which pod of the class happens to come first.
            reads_whole_pod = (
                own_gang
                or self._pipeline.reads_all
                or self._pipeline.extenders.is_interested(pod)
                or bool(pod.spec.resource_claims)
            )
            example = pod if reads_whole_pod else build_representative_pod(pod, visible_metadata)
            pod_class = PodClass.from_pod(example, requests, info.nonzero, priority)
            if not self._pipeline.reads_priority and not reads_whole_pod:
                first = self._first_of_kind.setdefault((*kind, own_gang), pod_class)
                pod_class = replace(pod_class, kin=first) if first is not pod_class else pod_class
            self._classes[identity] = pod_class
            if pod.spec.resource_claims:
                for key in (pod.key, *pod.resource_claim_keys):
                    self._represented_classes.setdefault(key, set()).add(identity)
        return pod_class

    def forget_classes_represented_by(self, pods_and_claims: Iterable[str]) -> None:
        """Forget pod classes that are represented by a given pod or by a pod with a given ResourceClaim.

        The pod may be gone, or its claim may have changed, so that it differs from the other pods of the class.

        Args:
          pods_and_claims: `namespace/name` of pods and ResourceClaims. If a pod and a ResourceClaim have the same
            name, more classes are forgotten than necessary, which does no harm.
        """
        for key in pods_and_claims:
            for identity in self._represented_classes.pop(key, ()):
                pod_class = self._classes.pop(identity, None)
                if pod_class is not None:
                    self._forgotten_classes.append(pod_class)

    def take_forgotten_classes(self) -> Sequence[PodClass]:
        """Return the pod classes that were forgotten since the last call of this method."""
        forgotten, self._forgotten_classes = self._forgotten_classes, []
        return forgotten

    def gang_parts_of(self, members: GangState, pods: Sequence[Pod], priority: int) -> tuple[GangPart, ...]:
        """Return the parts of a gang: its pods grouped by pod class and subGroup, in the order of their first pods."""
        group = members.group
        subgroup_index = (
            {subgroup.name: index for index, subgroup in enumerate(group.spec.sub_groups)} if group else {}
        )
        pods_by_part: dict[tuple[int, int], list[Pod]] = {}
        classes: dict[int, PodClass] = {}
        class_by_content: dict[object, PodClass] = {}
        part_pods: list[Pod] = []
        previous: Pod | None = None
        for pod in pods:
            # Pods of one template come one after the other, and comparing two is faster than hashing labels.
            if previous is None or not differ_only_in_names(pod, previous):
                content = (spec_key(pod), self._visible_metadata(pod), self.claim_states.claim_state_key(pod))
                pod_class = class_by_content.get(content)
                if pod_class is None:
                    pod_class = class_by_content[content] = self.pod_class_of(pod, priority)
                    classes[id(pod_class)] = pod_class
                subgroup = (
                    subgroup_index.get(pod.labels.get(SUB_GROUP_LABEL, ""), -1) if subgroup_index else -1
                )
                part_pods, previous = pods_by_part.setdefault((id(pod_class), subgroup), []), pod
            part_pods.append(pod)
        rank_label = group.spec.rank_label if group is not None else None
        return tuple(
            GangPart(
                classes[class_id],
                subgroup,
                tuple(part_pods if rank_label is None else sort_by_rank(part_pods, rank_label)),
            )
            for (class_id, subgroup), part_pods in pods_by_part.items()
        )

    def _visible_metadata(self, pod: Pod) -> tuple[tuple[str, str], ...]:
        """Return the metadata that plugins may read: some labels, or everything if an extender sees the pod."""
        labels = pod.labels
        # A cluster may have selectors over 100,000 labels, a pod has few.
        visible = tuple(
            (key, labels[key]) for key in sorted(labels) if self._reads_all_labels or key in self._label_keys
        )
        if self._pipeline.extenders and self._pipeline.extenders.is_interested(pod):
            visible += (*sorted(labels.items()), *sorted((pod.metadata.annotations or {}).items()))
        return visible

    def _own_gang(self, pod: Pod) -> str:
        """Return the gang's identity if its pods must not share classes with others, else "".

        The PreFilter refuses a gang that cannot reach its minimum; shared results would refuse other gangs. A pod with
        a volume of its own is different from all others to the volume plugins.
        """
        members = self._counts.gang_state(gang_identity(pod))
        if members is None or (
            self._counts.gang_counts_of_pod(pod).has_enough_pods and not has_ephemeral_volume(pod)
        ):
            return ""
        return members.identity
