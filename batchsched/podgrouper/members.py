"""Which pod belongs to which gang, as pods and their owners come and go, in any order.

A pod says who owns it, and its owner says what the gang needs. The pod gets its labels here, on its way into the cache,
so that no session ever sees it alone: while its owner is not known yet it is a member of a PodGroup that nobody has
made, which is refused like any other such gang. What stands in the API follows.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from batchsched.api import external_podgroups as foreign
from batchsched.api.core.pod import POD_GROUP_LABEL, SUB_GROUP_LABEL, Pod
from batchsched.api.crd.base import CustomMeta
from batchsched.api.crd.podgroup import PodGroup
from batchsched.podgrouper.groups import MADE, OWNER_LABEL, PodGroupSources
from batchsched.podgrouper.owners import Owner, Owners, Ref, owner_of
from batchsched.podgrouper.rules import Grouping
from batchsched.state.cluster_state import ClusterState


@dataclass(frozen=True, slots=True)
class GangOfPod:
    """Where a pod belongs.

    Args:
      ref: the owner that decides.
      name: of the PodGroup.
      index: which of the owner's gangs.
      owner: None while it is not known.
    """

    ref: Ref
    name: str
    index: str = ""
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class GangMember:
    """A pod whose owner may make it a member of a gang.

    Args:
      pod: as the API shows it, and in our words.
      ref: its owner.
      place: None for a pod that is for itself.
    """

    pod: Pod
    ref: Ref
    place: GangOfPod | None


class GangMembership:
    """Puts pods to gangs on their way into a cache.

    Args:
      cache: takes the pods.
      groups: takes the PodGroups that owners call for.
      scheduler_names: whose pods are ours.
    """

    def __init__(
        self, cache: ClusterState, groups: PodGroupSources, scheduler_names: Collection[str]
    ) -> None:
        self.owners = Owners(self._owner_changed)
        self.labels: dict[str, Mapping[str, str | None]] = {}
        """By pod, `namespace/name`: labels that it is to have in the API and has not; None: that it is not to have."""
        self._cache = cache
        self._groups = groups
        self._names = frozenset(scheduler_names)
        self._members: dict[str, GangMember] = {}
        self._owned: dict[str, set[str]] = {}
        self._pods_of: dict[str, set[str]] = {}
        self._made: dict[str, dict[str, str]] = {}

    # Pods

    def put(self, pod: Pod) -> None:
        """Take in a pod that is new or has changed."""
        self._cache.put(self._taken(pod))

    def remove(self, pod: Pod) -> None:
        """Forget a pod."""
        self._forget(pod.key)
        self._cache.remove(pod)

    def replace(self, kind: type, listed: Iterable[Any]) -> None:
        """Take in all pods there are."""
        pods = [self._taken(pod) for pod in listed]
        for key in sorted(self._members.keys() - {pod.key for pod in pods}):
            self._forget(key)
        self._cache.replace(kind, pods)

    def get(self, key: str) -> Pod | None:
        """Return a pod that may be a member of a gang, as the API shows it."""
        member = self._members.get(key)
        return member.pod if member else None

    def _taken(self, pod: Pod) -> Pod:
        if pod.spec.scheduler_name not in self._names:
            return pod
        pod = foreign.joined(pod)
        ref = owner_of(pod)
        if ref is None:
            if pod.key in self._members:
                self._forget(pod.key)
            return pod
        return self._placed(pod, ref)

    def _placed(self, pod: Pod, ref: Ref) -> Pod:
        """Put a pod to its gang; returns it with the labels of a member."""
        key = pod.key
        chain = tuple(self.owners.chain(ref))
        own = pod.metadata.label(POD_GROUP_LABEL)
        stated = own is not None and not any(_ours(own, pod, one, owner) for one, owner in chain)
        place = None if stated else _place(pod, chain)
        self._leave(key, place)
        self._members[key] = GangMember(pod, ref, place)
        self._owned.setdefault(_anchor(ref), set()).add(key)
        if place is not None:
            self._pods_of.setdefault(f"{pod.namespace}/{place.name}", set()).add(key)
            self._call_for(place)
        labels = {} if stated else _labels(pod, place)
        missing = {name: text for name, text in labels.items() if pod.metadata.label(name) != text}
        held = place is not None and place.owner is None
        if missing and not held and not pod.finished and not pod.terminating:
            self.labels[key] = missing
        else:
            self.labels.pop(key, None)
        return _with_labels(pod, missing) if missing else pod

    def _leave(self, key: str, place: GangOfPod | None) -> None:
        """Let a pod leave its gang for another one."""
        member = self._members.get(key)
        before = member.place if member is not None else None
        if before is None or (place is not None and place.name == before.name):
            return
        group = f"{before.ref.namespace}/{before.name}"
        left = self._pods_of.get(group, set())
        left.discard(key)
        if not left:
            self._pods_of.pop(group, None)
            # Of an owner with many gangs each goes with its last pod; others stay for as long as the owner does.
            if before.index and self._made.get(before.ref.uid, {}).pop(group, None) is not None:
                self._groups.remove(MADE, group)

    def _forget(self, key: str) -> None:
        self._leave(key, None)
        self.labels.pop(key, None)
        member = self._members.pop(key, None)
        if member is not None:
            owned = self._owned.get(_anchor(member.ref), set())
            owned.discard(key)
            if not owned:
                self._owned.pop(_anchor(member.ref), None)

    # Owners

    def owner_of_group(self, group: PodGroup) -> Owner | None:
        """Return the owner that calls, or called, for a PodGroup that we wrote; None when it is gone."""
        uid = group.metadata.labels.get(OWNER_LABEL, "")
        return self.owners.find(Ref("", "", "", "", uid)) if uid else None

    def _call_for(self, place: GangOfPod) -> None:
        """Make the PodGroup of a gang that has its first pod."""
        if place.owner is None or place.owner.grouping is None:
            return
        made = self._made.setdefault(place.ref.uid, {})
        group = f"{place.ref.namespace}/{place.name}"
        if group not in made:
            made[group] = place.name
            self._groups.put(MADE, _group(place.owner, place.owner.grouping, place.name))

    def _owner_changed(self, before: Owner | None, after: Owner | None) -> None:
        owner = after or before
        if owner is None:
            return
        made = self._made.get(owner.ref.uid, {})
        for group, name in tuple(made.items()):
            if after is None or after.grouping is None:
                del made[group]
                self._groups.remove(MADE, group)
            else:
                self._groups.put(MADE, _group(after, after.grouping, name))
        if after is None:
            self._made.pop(owner.ref.uid, None)
        if before is None or after is None or not before.places_as(after):
            self._place_again(owner)

    def _place_again(self, owner: Owner) -> None:
        """Put the pods below an owner to their gangs, now that more, or something else, is known of it."""
        anchors = [*self.owners.family(owner.ref.uid), _anchor(by_name(owner.ref))]
        keys = {key for anchor in anchors for key in self._owned.get(anchor, ())}
        for key in sorted(keys):
            member = self._members[key]
            known = self._cache.get("pods", key)
            placed = self._placed(member.pod, member.ref)
            if known is not None:
                # The version is not the pod's: it is we who changed it.
                self._cache.put(placed, version="")


def by_name(ref: Ref) -> Ref:
    """Return a reference by name alone."""
    return Ref(ref.group, ref.kind, ref.namespace, ref.name, "")


def _anchor(ref: Ref) -> str:
    return ref.uid or f"{ref.kind}/{ref.namespace}/{ref.name}"


def _place(pod: Pod, chain: tuple[tuple[Ref, Owner | None], ...]) -> GangOfPod | None:
    """Return where a pod belongs: to the topmost owner that makes a gang, or may turn out to."""
    for ref, owner in reversed(chain):
        if owner is None:
            return GangOfPod(ref, ref.group_name())
        if owner.grouping is not None:
            index = pod.labels.get(owner.grouping.gang_label, "") if owner.grouping.gang_label else ""
            return GangOfPod(ref, ref.group_name(index), index, owner)
    return None


def _ours(name: str, pod: Pod, ref: Ref, owner: Owner | None) -> bool:
    """Tell whether a pod's label names a PodGroup that its owner called for, now or before."""
    if name == ref.group_name():
        return True
    label = owner.grouping.gang_label if owner is not None and owner.grouping is not None else ""
    return bool(label) and name == ref.group_name(pod.labels.get(label, ""))


def _labels(pod: Pod, place: GangOfPod | None) -> dict[str, str | None]:
    """Return the labels that a pod is to have where it belongs; None: that it is not to have."""
    if place is None:
        return {POD_GROUP_LABEL: None} if pod.metadata.label(POD_GROUP_LABEL) else {}
    found: dict[str, str | None] = {POD_GROUP_LABEL: place.name}
    grouping = place.owner.grouping if place.owner is not None else None
    if grouping is not None and pod.metadata.label(SUB_GROUP_LABEL) is None:
        names = (pod.labels.get(label) for label in grouping.sub_group_labels)
        sub_group = next((name for name in names if name), None)
        found |= {SUB_GROUP_LABEL: sub_group} if sub_group else {}
    return found


def _with_labels(pod: Pod, changes: Mapping[str, str | None]) -> Pod:
    labels = {**(pod.metadata.labels or {}), **changes}
    stated = {name: text for name, text in labels.items() if text is not None}
    return replace(pod, metadata=replace(pod.metadata, labels=stated))


def _group(owner: Owner, grouping: Grouping, name: str) -> PodGroup:
    meta = CustomMeta(
        name=name,
        namespace=owner.ref.namespace,
        labels={OWNER_LABEL: owner.ref.uid},
        creation_timestamp=owner.created,
    )
    return PodGroup(metadata=meta, spec=grouping.spec)
