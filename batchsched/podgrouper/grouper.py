"""The pod grouper: it assigns pods to gangs, which it derives from the owners of the pods.

Pods and owners may arrive, change and disappear in any order. A pod names its owner, and the owner determines the
needs of the gang. A pod receives the labels of its gang before it enters the cluster state, so that no session sees
it without a gang. While its owner is unknown, the pod belongs to a PodGroup that does not exist, and is refused like
other pods of missing PodGroups. `pod_group_writer` writes the labels to the API later.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from batchsched.api.core.pod import POD_GROUP_LABEL, QUEUE_LABEL, SUB_GROUP_LABEL, Pod
from batchsched.api.crd.base import CustomMeta
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.external.conversion import EXTERNAL_KINDS, with_gang_labels
from batchsched.api.external.kubernetes import CompositePodGroup, UpstreamPodGroup
from batchsched.api.snapshot import ObjectKind
from batchsched.api.unsupported_fields import UNSUPPORTED_FIELD
from batchsched.config.owner_rules import OwnerRule
from batchsched.kube.connection import ApiResource, Connection, api_resource, plural_of_kind
from batchsched.kube.reflector import Reflector, ReflectorSettings
from batchsched.manifests.decode import Decoder
from batchsched.podgrouper.configured_rules import built_in_and_configured_owner_kinds
from batchsched.podgrouper.kubernetes_groups import KubernetesGroupStore, TreeLabelingPodStore
from batchsched.podgrouper.owners import (
    Owner,
    OwnerHandler,
    OwnerReferenceKey,
    Owners,
    decode_owner,
    gang_owner_reference_of_pod,
    read_spark_driver_as_owner,
)
from batchsched.podgrouper.pod_group_index import DERIVED, OWNER_LABEL, PodGroupIndex, PodGroupStore
from batchsched.podgrouper.rules import KNOWN_OWNER_KINDS, OwnerKinds, PodGroupTemplate
from batchsched.podgrouper.topologies import TopologyIndex
from batchsched.ports.cluster import Clock
from batchsched.runner.event_handlers import EventHandler, ObjectStore
from batchsched.state.cluster_state import ClusterState

OwnerChain = tuple[tuple[OwnerReferenceKey, Owner | None], ...]
"""An owner of a pod and the owners above it; an unknown owner is None."""


@dataclass(frozen=True, slots=True)
class PodGang:
    """The gang that the pod grouper derived for a pod from the owner of the pod, such as a Job.

    Args:
      ref: the owner that determines the gang.
      name: the name of the PodGroup.
      index: the label value that distinguishes the gangs of one owner; "" for a single gang.
      owner: None while the owner is unknown.
      template: the template of the PodGroup; None while the owner is unknown.
      variant: the gang variant; "" for the first gang of the owner.
      sub_group: the subgroup of the pod; "" without one.
    """

    ref: OwnerReferenceKey
    name: str
    index: str = ""
    owner: Owner | None = None
    template: PodGroupTemplate | None = None
    variant: str = ""
    sub_group: str = ""


@dataclass(frozen=True, slots=True)
class OwnedPod:
    """A pod that belongs to an owner such as a Job, with the gang of the pod if it has one.

    Args:
      pod: the pod of the API, with labels of other schedulers translated.
      ref: its owner.
      gang: None for a pod without a gang.
    """

    pod: Pod
    ref: OwnerReferenceKey
    gang: PodGang | None


@dataclass(frozen=True, slots=True)
class DerivedPodGroup:
    """A PodGroup that the grouper derived from an owner.

    Args:
      name: the name of the PodGroup.
      variant: the gang variant of the PodGroup; "" for the first gang of the owner.
      template: the template that it was derived from.
    """

    name: str
    variant: str
    template: PodGroupTemplate


class GangAssigningPodStore:
    """The store that assigns pods to the gangs of their owners and passes the pods to the cluster state.

    It adds gang labels to the pods.

    Args:
      cache: receives the pods.
      groups: receives the derived PodGroups.
      scheduler_names: pods with these scheduler names are grouped.
      derive: whether owners determine gangs; otherwise only labels do.
      kinds: the kinds of owners that form gangs.
    """

    def __init__(
        self,
        cache: ClusterState,
        groups: PodGroupIndex,
        scheduler_names: Collection[str],
        *,
        derive: bool = True,
        kinds: OwnerKinds = KNOWN_OWNER_KINDS,
    ) -> None:
        self.kinds = kinds
        self.owners = Owners(self._owner_changed, kinds)
        self.labels: dict[str, Mapping[str, str | None]] = {}
        """By pod, `namespace/name`: the labels to write to the API; None: a label to remove."""
        self._cache = cache
        self._groups = groups
        self._names = frozenset(scheduler_names)
        self._derive_gangs = derive
        self._pod_owners: set[str] = set()
        self._members: dict[str, OwnedPod] = {}
        self._owned: dict[str, set[str]] = {}
        self._pods_of: dict[str, set[str]] = {}
        self._derived: dict[str, dict[str, DerivedPodGroup]] = {}

    # Pods

    def put(self, pod: Pod) -> None:
        """Assign a new or changed pod to its gang and pass it to the cluster state.

        The pod must not be outdated: the cluster state would ignore it, and this store would show it again.
        """
        self._cache.put(self._with_gang(pod))

    def remove(self, pod: Pod) -> None:
        """Remove a deleted pod from its gang and from the cluster state."""
        self._forget(pod.key)
        if pod.metadata.uid in self._pod_owners:
            self._pod_owners.discard(pod.metadata.uid)
            self.owners.remove_owner(pod.metadata.uid)
        self._cache.remove(pod)

    def replace(self, kind: type, listed: Iterable[Any]) -> None:
        """Replace all pods in the cluster state by a complete list, each assigned to its gang."""
        listed_pods = list(listed)
        drivers = {pod.metadata.uid for pod in listed_pods if self.add_owner_if_spark_driver(pod)}
        for uid in sorted(self._pod_owners - drivers):
            self._pod_owners.discard(uid)
            self.owners.remove_owner(uid)
        pods = [self._with_gang(pod) for pod in listed_pods]
        for key in sorted(self._members.keys() - {pod.key for pod in pods}):
            self._forget(key)
        self._cache.replace(kind, pods)

    def pod_without_gang_labels(self, key: str) -> Pod | None:
        """Return the pod with this `namespace/name` as it is in the API, without added gang labels.

        The result is None if the pod is unknown, or if the kind of its owner forms no gangs.
        """
        member = self._members.get(key)
        return member.pod if member else None

    def add_owner_if_spark_driver(self, pod: Pod) -> bool:
        """Add a pod to the owners of pods if it is a Spark driver; return True if it was added.

        A driver that a SparkApplication created is not added: the SparkApplication is the owner of its executors.
        """
        owner = read_spark_driver_as_owner(pod) if self._derive_gangs else None
        if owner is None or pod.spec.scheduler_name not in self._names:
            return False
        self._pod_owners.add(owner.ref.uid)
        self.owners.put_owner(owner)
        return True

    def _with_gang(self, pod: Pod) -> Pod:
        if pod.spec.scheduler_name not in self._names:
            return pod
        self.add_owner_if_spark_driver(pod)
        pod = with_gang_labels(pod)
        ref = gang_owner_reference_of_pod(pod, self.kinds) if self._derive_gangs else None
        if ref is None:
            if pod.key in self._members:
                self._forget(pod.key)
            return pod
        return self._assign(pod, ref)

    def _assign(self, pod: Pod, ref: OwnerReferenceKey) -> Pod:
        """Assign a pod to its gang and return it with the labels of a member."""
        key = pod.key
        chain = tuple(self.owners.owner_and_ancestors(ref))
        own = pod.metadata.label(POD_GROUP_LABEL)
        names_own_group = own is not None and not any(
            _is_derived(own, pod, link, owner) for link, owner in chain
        )
        gang = None if names_own_group else _gang_of(pod, chain, self.owners)
        self._leave(key, gang)
        self._leave_owner(key, ref)
        self._members[key] = OwnedPod(pod, ref, gang)
        self._owned.setdefault(_anchor(ref), set()).add(key)
        if gang is not None:
            self._pods_of.setdefault(f"{pod.namespace}/{gang.name}", set()).add(key)
            self._derive(gang)
        labels = {} if names_own_group else _labels(pod, gang, chain)
        missing = {name: text for name, text in labels.items() if pod.metadata.label(name) != text}
        owner_unknown = gang is not None and gang.owner is None
        if missing and not owner_unknown and not pod.finished and not pod.terminating:
            self.labels[key] = missing
        else:
            self.labels.pop(key, None)
        return _with_labels(pod, missing) if missing else pod

    def _leave(self, key: str, gang: PodGang | None) -> None:
        """Remove a pod from its former gang, unless `gang` is the same gang."""
        member = self._members.get(key)
        before = member.gang if member is not None else None
        if before is None or (gang is not None and gang.name == before.name):
            return
        group = f"{before.ref.namespace}/{before.name}"
        remaining = self._pods_of.get(group, set())
        remaining.discard(key)
        if not remaining:
            self._pods_of.pop(group, None)
            # With several gangs per owner, a PodGroup ends with its last pod. A single one ends with its owner.
            if before.index and self._derived.get(before.ref.uid, {}).pop(group, None) is not None:
                self._groups.remove_group_of_origin(DERIVED, group)

    def _leave_owner(self, key: str, ref: OwnerReferenceKey | None) -> None:
        """Remove a pod from its former owner, unless `ref` refers to the same owner."""
        member = self._members.get(key)
        if member is None or member.ref == ref:
            return
        owned = self._owned.get(_anchor(member.ref), set())
        owned.discard(key)
        if not owned:
            self._owned.pop(_anchor(member.ref), None)

    def _forget(self, key: str) -> None:
        self._leave(key, None)
        self._leave_owner(key, None)
        self.labels.pop(key, None)
        self._members.pop(key, None)

    # Owners

    def owner_of_group(self, group: PodGroup) -> Owner | None:
        """Return the owner from which the grouper derived a PodGroup, or None if the owner is unknown.

        An owner that was deleted is unknown.
        """
        uid = group.metadata.labels.get(OWNER_LABEL, "")
        return self.owners.resolve_owner_reference(OwnerReferenceKey("", "", "", "", uid)) if uid else None

    def _derive(self, gang: PodGang) -> None:
        """Add the PodGroup of a gang when its first pod arrives, or replace it if its template has changed."""
        if gang.owner is None or gang.template is None:
            return
        groups = self._derived.setdefault(gang.ref.uid, {})
        key = f"{gang.ref.namespace}/{gang.name}"
        derived = DerivedPodGroup(gang.name, gang.variant, gang.template)
        if groups.get(key) != derived:
            groups[key] = derived
            self._groups.put_group_of_origin(DERIVED, _group(gang.owner, derived))

    def _owner_changed(self, before: Owner | None, after: Owner | None) -> None:
        owner = after or before
        if owner is None:
            return
        groups = self._derived.get(owner.ref.uid, {})
        template = self._pod_group_template_of(after) if after is not None else None
        for key, derived in tuple(groups.items()):
            if after is None or template is None:
                del groups[key]
                self._groups.remove_group_of_origin(DERIVED, key)
            else:
                groups[key] = DerivedPodGroup(derived.name, derived.variant, template)
                self._groups.put_group_of_origin(DERIVED, _group(after, groups[key]))
        if after is None:
            self._derived.pop(owner.ref.uid, None)
        if before is None or after is None or not before.has_same_gangs(after):
            self._reassign(owner)

    def _pod_group_template_of(self, owner: Owner) -> PodGroupTemplate | None:
        """Return the template of the PodGroups of an owner, with fields from the owners above it."""
        inherited: dict[str, Any] = {}
        for _, above in reversed(tuple(self.owners.owner_and_ancestors(owner.ref))[1:]):
            inherited |= above.gang_settings.stated_fields if above is not None else {}
        return self.owners.pod_group_template_of(owner, inherited)

    def _reassign(self, owner: Owner) -> None:
        """Assign the pods below an owner again, after the owner changed."""
        refs = (owner.ref, *self.owners.descendants(owner.ref.uid))
        anchors = [anchor for ref in refs for anchor in (_anchor(ref), _anchor(reference_without_uid(ref)))]
        keys = {key for anchor in anchors for key in self._owned.get(anchor, ())}
        for key in sorted(keys):
            member = self._members[key]
            cached = self._cache.get("pods", key)
            assigned = self._assign(member.pod, member.ref)
            if cached is not None:
                # Without a version: the labels changed here, and not the object in the API.
                self._cache.put(assigned, version="")


def reference_without_uid(ref: OwnerReferenceKey) -> OwnerReferenceKey:
    """Return a copy of an owner reference without its uid, so that the copy refers to the owner by name."""
    return OwnerReferenceKey(ref.group, ref.kind, ref.namespace, ref.name, "")


def _anchor(ref: OwnerReferenceKey) -> str:
    # With the namespace, because pods of other namespaces may name the uid.
    return f"{ref.namespace}/{ref.uid or f'{ref.kind}/{ref.name}'}"


def _gang_of(pod: Pod, chain: OwnerChain, owners: Owners) -> PodGang | None:
    """Return the gang of a pod: that of the topmost owner that forms one, or that is still unknown.

    The labels and annotations of the owners above it, which form no gang, apply to the gang as well.
    """
    inherited: dict[str, Any] = {}
    for ref, owner in reversed(chain):
        if owner is None:
            return PodGang(ref, ref.pod_group_name())
        template = owners.pod_group_template_of(owner, inherited)
        if template is not None:
            index = pod.labels.get(template.gang_label, "") if template.gang_label else ""
            name, marks = ref.pod_group_name(index), owner.kind.read_membership
            variant, sub_group = marks(pod.labels) if marks is not None else ("", "")
            return PodGang(ref, name, index, owner, template, variant, sub_group)
        inherited |= owner.gang_settings.stated_fields
    return None


def _is_derived(name: str, pod: Pod, ref: OwnerReferenceKey, owner: Owner | None) -> bool:
    """Return whether `name`, the PodGroup in a pod's label, was derived from this owner."""
    if name == ref.pod_group_name():
        return True
    shape = owner.gang_settings.shape if owner is not None else None
    label = shape.gang_label if shape is not None else ""
    return bool(label) and name == ref.pod_group_name(pod.labels.get(label, ""))


def _labels(pod: Pod, gang: PodGang | None, chain: OwnerChain) -> dict[str, str | None]:
    """Return the labels that a pod gets from its gang and its owners; the value None removes a label."""
    if gang is None:
        labels: dict[str, str | None] = {POD_GROUP_LABEL: None} if pod.metadata.label(POD_GROUP_LABEL) else {}
        queues = (owner.gang_settings.stated_fields.get("queue") for _, owner in chain if owner is not None)
        queue = next(filter(None, queues), "")
        return labels | ({QUEUE_LABEL: queue} if queue and not pod.metadata.label(QUEUE_LABEL) else {})
    labels = {POD_GROUP_LABEL: gang.name}
    template = gang.template
    if template is not None and pod.metadata.label(SUB_GROUP_LABEL) is None and template.sub_group_labels:
        names = (pod.labels.get(label) for label in template.sub_group_labels)
        sub_group = gang.sub_group or next((name for name in names if name), None)
        labels |= {SUB_GROUP_LABEL: sub_group} if sub_group else {}
    return labels


def _with_labels(pod: Pod, changes: Mapping[str, str | None]) -> Pod:
    labels = {**(pod.metadata.labels or {}), **changes}
    kept = {name: text for name, text in labels.items() if text is not None}
    return replace(pod, metadata=replace(pod.metadata, labels=kept))


def _group(owner: Owner, derived: DerivedPodGroup) -> PodGroup:
    template = derived.template
    meta = CustomMeta(
        name=derived.name,
        namespace=owner.ref.namespace,
        labels={OWNER_LABEL: owner.ref.uid},
        annotations={UNSUPPORTED_FIELD: template.unsupported_field} if template.unsupported_field else {},
        creation_timestamp=owner.created,
    )
    return PodGroup(metadata=meta, spec=template.pod_group_spec_of_variant(derived.variant))


_TRANSLATED: Final = tuple(enumerate(EXTERNAL_KINDS))
_COMPOSITE: Final = next(number for number, kind in _TRANSLATED if kind.type is CompositePodGroup)


@dataclass(slots=True)
class PodGrouper:
    """The pod grouper: it assigns pods to gangs by their owners, and passes pods and PodGroups to the cluster state.

    Args:
      cache: receives pods and PodGroups.
      scheduler_names: pods with these scheduler names are grouped.
      changed: is called after each change of the cluster state.
      derive: whether owners determine gangs; otherwise only labels do.
      rules: the rules of the configuration for further kinds of owners.
    """

    cache: ClusterState
    scheduler_names: Collection[str]
    changed: Callable[[], None]
    derive: bool = True
    rules: Sequence[OwnerRule] = ()
    kinds: OwnerKinds = field(init=False)
    topologies: TopologyIndex = field(init=False)
    groups: PodGroupIndex = field(init=False)
    members: GangAssigningPodStore = field(init=False)
    pods: TreeLabelingPodStore = field(init=False)

    def __post_init__(self) -> None:
        self.kinds = built_in_and_configured_owner_kinds(self.rules)
        self.topologies = TopologyIndex(self.cache)
        self.groups = PodGroupIndex(self.cache, len(EXTERNAL_KINDS))
        self.members = GangAssigningPodStore(
            self.cache, self.groups, self.scheduler_names, derive=self.derive, kinds=self.kinds
        )
        self.pods = TreeLabelingPodStore(
            self.cache.group_trees, self.members, self.scheduler_names, self.cache.is_outdated
        )

    def store_for(self, kind: ObjectKind) -> ObjectStore:
        """Return the store that receives the objects of a kind from its reflector."""
        if kind.type is Pod:
            return self.pods
        if kind.type is PodGroup:
            return PodGroupStore(self.groups)
        return self.topologies.store_for(kind) or self.cache

    def create_reflectors(
        self, connection: Connection, clock: Clock, decoder: Decoder
    ) -> Iterator[Reflector]:
        """Yield the reflectors for owners of pods, and for PodGroups and topologies of other projects."""
        for number, kind in _TRANSLATED:
            handlers = EventHandler(kind, self._external_store(number, kind), decoder, self.changed)
            terms = ReflectorSettings(without="pods that name one wait")
            yield Reflector(
                connection, api_resource(kind), handlers, clock, terms=terms, read=handlers.decode
            )
        for kind, store in self.topologies.external_kinds_and_stores():
            handlers = EventHandler(kind, store, decoder, self.changed)
            terms = ReflectorSettings(without="gangs that name a level of one wait")
            yield Reflector(
                connection, api_resource(kind), handlers, clock, terms=terms, read=handlers.decode
            )
        for owner in self.kinds.all if self.derive else ():
            collection = ApiResource(
                owner.api_version, owner.resource or plural_of_kind(owner.name), owner.name, namespaced=True
            )
            handler = OwnerHandler(self.members.owners, self.changed, owner.name)
            terms = ReflectorSettings(without="pods that they own wait")
            yield Reflector(
                connection, collection, handler, clock, terms=terms, read=partial(decode_owner, owner)
            )

    def _external_store(self, number: int, kind: ObjectKind) -> ObjectStore:
        if not issubclass(kind.type, UpstreamPodGroup | CompositePodGroup):
            return PodGroupStore(self.groups, number)
        return KubernetesGroupStore(
            self.cache.group_trees,
            self.groups,
            self.pods,
            number,
            _COMPOSITE,
            is_composite=kind.type is CompositePodGroup,
        )
