"""VolumeZone: volumes with zone or region labels can be mounted only there."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.core.volume import PersistentVolume, PersistentVolumeClaim
from batchsched.framework.cycle_state import CycleState, StateKey
from batchsched.framework.events import Action, ClusterEventWithHint, EventResource, Hint, queue_if_changed
from batchsched.framework.interface import (
    EnqueueExtensionsPlugin,
    FilterPlugin,
    PreFilterPlugin,
    SignaturePlugin,
)
from batchsched.framework.nodes.node_table import Nodes
from batchsched.framework.plugin_support.volume_listers import (
    WAIT_FOR_FIRST_CONSUMER,
    StorageObjects,
    claim_ref_allows_pod,
    has_new_volume_or_storage_class,
    nonephemeral_volume_claim_names,
    storage_objects,
    volume_claim_storage_class,
)
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import (
    ASK_FILTER,
    SKIP_FILTER,
    BoolArray,
    Code,
    PreFilterAnswer,
    Status,
    Verdict,
)
from batchsched.framework.traits import NODE_OBJECT_TRAITS, PluginTraits

NO_ZONE: Final = "node(s) had no available volume zone"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
SUCCESSOR: Final = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    ZONE: ZONE,
    REGION: REGION,
}
"""Topology label of a volume → the label that is read if a node lacks the first, in the order of the checks."""
SEPARATOR: Final = "__"


@dataclass(frozen=True, slots=True)
class ZoneRequirement:
    """A zone or region label that a volume requires of a node, with the allowed values of the label."""

    key: str
    values: frozenset[str]


class _Refused(Exception):
    """The pod cannot be placed on any node; PreFilter catches this exception."""


REQUIREMENTS: Final = StateKey[tuple[ZoneRequirement, ...]]("VolumeZone/requirements")


class VolumeZone(SignaturePlugin, PreFilterPlugin, FilterPlugin, EnqueueExtensionsPlugin):
    """Refuses nodes with another zone or region label than the volumes bound to the pod's claims.

    A node without these labels passes.

    Volumes of claims that wait for their first consumer have no zone yet.

    Source: kube-scheduler's plugins/volumezone.
    """

    name: ClassVar[str] = "VolumeZone"
    traits: ClassVar[PluginTraits] = NODE_OBJECT_TRAITS

    @override
    def signature(self, pod: Pod) -> Hashable:
        return nonephemeral_volume_claim_names(pod)

    @override
    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        requirements: list[ZoneRequirement] = []
        names = nonephemeral_volume_claim_names(pod.pod)
        if not names:
            return SKIP_FILTER
        storage = storage_objects(nodes.table)
        try:
            for name in names:
                claim = storage.claims.get(f"{pod.pod.namespace}/{name}")
                volume = _volume_of(name, claim, storage)
                requirements += _requirements(volume) if volume is not None else []
        except _Refused as refused:
            return PreFilterAnswer(Status(Code.UNRESOLVABLE, (str(refused),)))
        state.write(REQUIREMENTS, tuple(requirements))
        return ASK_FILTER if requirements else SKIP_FILTER

    @override
    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        labelled = np.zeros(len(nodes), np.bool_)
        for key in SUCCESSOR:
            labelled |= nodes.label_indexes_and_values(key)[0] >= 0
        matching = np.ones(len(nodes), np.bool_)
        for requirement in state.read(REQUIREMENTS):
            matching &= _matching(requirement, nodes)
        return Verdict.refuse(labelled & ~matching, NO_ZONE, unresolvable=True)

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        come_or_change = Action.ADD | Action.UPDATE
        labelled = Action.ADD | Action.UPDATE_NODE_LABEL
        other_mode = queue_if_changed(attrgetter("volume_binding_mode"))
        return (
            ClusterEventWithHint.for_events(EventResource.NODE, labelled, _node_moved),
            ClusterEventWithHint.for_events(EventResource.CLAIM, come_or_change, _claim_changed),
            ClusterEventWithHint.for_events(EventResource.VOLUME, come_or_change, _volume_changed),
            ClusterEventWithHint.for_events(EventResource.STORAGE_CLASS, come_or_change, other_mode),
        )


def _node_moved(_pod: Pod, old: Node | None, new: Node) -> Hint:
    return Hint.queue_if(old is None or any(old.labels.get(key) != new.labels.get(key) for key in SUCCESSOR))


def _claim_changed(pod: Pod, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> Hint:
    named = new.key in [f"{pod.namespace}/{name}" for name in nonephemeral_volume_claim_names(pod)]
    return Hint.queue_if(named and has_new_volume_or_storage_class(old, new))


def _volume_changed(pod: Pod, old: PersistentVolume | None, new: PersistentVolume) -> Hint:
    if old is not None and _requirements(old) == _requirements(new):
        return Hint.SKIP
    return Hint.queue_if(claim_ref_allows_pod(new, pod))


def _volume_of(
    name: str, claim: PersistentVolumeClaim | None, storage: StorageObjects
) -> PersistentVolume | None:
    """Return the volume of a claim, None if the claim waits for its first consumer.

    Raises:
      _Refused: the claim has no volume and gets none.
    """
    if not name:
        raise _Refused("PersistentVolumeClaim had no name")
    if claim is None:
        raise _Refused(f'persistentvolumeclaim "{name}" not found')
    if not claim.spec.volume_name:
        _check_waits(volume_claim_storage_class(claim), storage)
        return None
    volume = storage.volumes.get(claim.spec.volume_name)
    if volume is None:
        raise _Refused(f'persistentvolume "{claim.spec.volume_name}" not found')
    return volume


def _check_waits(name: str, storage: StorageObjects) -> None:
    """Check that a class has the binding mode WaitForFirstConsumer.

    Raises:
      _Refused: it has another one.
    """
    if not name:
        raise _Refused("PersistentVolumeClaim had no pv name and storageClass name")
    storage_class = storage.classes.get(name)
    if storage_class is None:
        raise _Refused(f'storageclass.storage.k8s.io "{name}" not found')
    if storage_class.volume_binding_mode is None:
        raise _Refused(f'VolumeBindingMode not set for StorageClass "{name}"')
    if storage_class.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
        raise _Refused("PersistentVolume had no name")


def _requirements(volume: PersistentVolume) -> list[ZoneRequirement]:
    """Return the topology labels of a volume; a label with an empty value counts as missing."""
    requirements = []
    for key in SUCCESSOR:
        label = volume.metadata.label(key)
        values = [value.strip() for value in label.split(SEPARATOR)] if label is not None else []
        if values and all(values):
            requirements.append(ZoneRequirement(key, frozenset(values)))
    return requirements


def _matching(requirement: ZoneRequirement, nodes: Nodes) -> BoolArray:
    own = _with_value(requirement.key, requirement.values, nodes)
    if SUCCESSOR[requirement.key] == requirement.key:
        return own
    missing = nodes.label_indexes_and_values(requirement.key)[0] < 0
    matching: BoolArray = np.where(
        missing, _with_value(SUCCESSOR[requirement.key], requirement.values, nodes), own
    )
    return matching


def _with_value(key: str, permitted: frozenset[str], nodes: Nodes) -> BoolArray:
    codes, values = nodes.label_indexes_and_values(key)
    return np.asarray([*(value in permitted for value in values), False], np.bool_)[codes]
