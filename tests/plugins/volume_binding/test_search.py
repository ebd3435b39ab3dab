import msgspec
import pytest

from batchsched.api.core.volume import CSIDriver, CSIStorageCapacity
from batchsched.errors import PluginError
from batchsched.framework.plugin_support.volume_listers import storage_objects
from batchsched.plugins.volume_binding.claims import bound_and_delayed_volume_claims
from batchsched.plugins.volume_binding.search import (
    BIND_CONFLICT,
    NODE_CONFLICT,
    NOT_ENOUGH_SPACE,
    VOLUME_MISSING,
    find_pod_volumes,
)
from tests.plugins.cluster import node
from tests.plugins.storage import DRIVER, ZONE, claim, claiming, csi_node, storage_class, stored, volume

NODES = [node("a", labels={ZONE: "a"}), node("b", labels={ZONE: "b"})]
STATIC = storage_class(provisioner="kubernetes.io/no-provisioner")


def found(pod, *objects):
    made = stored(NODES, *objects)
    claims = bound_and_delayed_volume_claims(pod, storage_objects(made))
    assert claims is not None
    return find_pod_volumes(claims, made.all_nodes_view())


def reasons(pod, *objects):
    verdict = found(pod, *objects).verdict()
    return [verdict.reasons_at(at) for at in range(len(NODES))]


def given(pod, *objects):
    """The volume of each claim on each node."""
    result = found(pod, *objects)
    names = [one.metadata.name for one in result.volumes]
    return {
        one.metadata.name: [names[at] if at >= 0 else "" for at in choice.tolist()]
        for one, choice in result.matches
    }


def room(name, zone, **fields):
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "csi"},
            "nodeTopology": {"matchLabels": {ZONE: zone}},
            "storageClassName": "late",
            **fields,
        },
        CSIStorageCapacity,
    )


def test_bound_volumes_must_be_accessible_from_the_node():
    assert reasons(claiming("x", "c"), claim("c", "v"), volume("v", zones="a")) == [(), (NODE_CONFLICT,)]


def test_a_missing_bound_volume_refuses_the_nodes_not_refused_by_earlier_claims():
    objects = claim("c", "v"), claim("d", "gone"), volume("v", zones="a")
    assert reasons(claiming("x", "c", "d"), *objects) == [(VOLUME_MISSING,), (NODE_CONFLICT,)]
    assert reasons(claiming("x", "d", "c"), *objects) == [(VOLUME_MISSING,), (VOLUME_MISSING,)]


GCE = "kubernetes.io/gce-pd"
GCE_ZONE = "topology.gke.io/zone"
DISK = {"pdName": "d"}


def test_the_zone_of_a_migrated_volume_is_compared_with_the_label_of_the_csi_driver():
    # volume/scheduling/scheduler_binder.go, `tryTranslatePVToCSI`: where the node's annotation names the plugin.
    made = stored(
        [*NODES, node("c", labels={ZONE: "b", GCE_ZONE: "a"})],
        claim("c", "v"),
        volume("v", zones="a", gcePersistentDisk=DISK),
        csi_node("a", migrated=GCE),
        csi_node("c", migrated=GCE),
    )
    claims = bound_and_delayed_volume_claims(claiming("x", "c"), storage_objects(made))
    assert claims is not None
    verdict = find_pod_volumes(claims, made.all_nodes_view()).verdict()
    assert [verdict.reasons_at(at) for at in range(3)] == [(NODE_CONFLICT,), (NODE_CONFLICT,), ()]


def test_a_migrated_volume_without_a_handle_is_an_error_only_if_its_claim_is_reached():
    # `checkBoundClaims` ends at the first claim that a node cannot serve.
    odd = volume("v", labels={ZONE: "x__y"}, gcePersistentDisk=DISK)
    objects = claim("c", "v"), claim("d", "gone"), odd, csi_node("a", migrated=GCE)
    assert reasons(claiming("x", "d", "c"), *objects) == [(VOLUME_MISSING,), (VOLUME_MISSING,)]
    with pytest.raises(PluginError, match="could not translate pv v"):
        reasons(claiming("x", "c", "d"), *objects)


def test_node_affinity_of_a_volume_ignores_match_fields():
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    local = volume("v", nodeAffinity={"required": {"nodeSelectorTerms": [term]}})
    assert reasons(claiming("x", "c"), claim("c", "v"), local) == [(NODE_CONFLICT,), (NODE_CONFLICT,)]


def test_a_claim_takes_the_smallest_accessible_volume_that_is_large_enough():
    volumes = volume("small", "500Mi"), volume("far", "1Gi", "b"), volume("big", "3Gi"), volume("mid", "2Gi")
    assert given(claiming("x", "c"), claim("c"), STATIC, *volumes) == {"c": ["mid", "far"]}


def test_smaller_claims_choose_first_and_a_volume_is_given_once():
    claims = claim("c", size="2Gi"), claim("d", size="1Gi")
    volumes = volume("v", "2Gi"), volume("w", "5Gi", "a")
    assert given(claiming("x", "c", "d"), *claims, STATIC, *volumes) == {"d": ["v", "v"], "c": ["w", ""]}
    assert reasons(claiming("x", "c", "d"), *claims, STATIC, *volumes) == [(), (BIND_CONFLICT,)]


def test_unsuitable_volumes_are_ignored():
    other = {"namespace": "default", "name": "other"}
    odd = [
        volume("block", volumeMode="Block"),
        volume("used", claimRef=other),
        volume("pending", phase="Pending"),
        volume("class", storageClassName="fast"),
        volume("modes", accessModes=["ReadOnlyMany"]),
        volume("gold", volumeAttributesClassName="gold"),
    ]
    assert given(claiming("x", "c"), claim("c"), STATIC, *odd) == {"c": ["", ""]}
    picky = claim("c", selector={"matchLabels": {"tier": "1"}})
    volumes = volume("v"), volume("w", "9Gi", labels={"tier": "1"})
    assert given(claiming("x", "c"), picky, STATIC, *volumes) == {"c": ["w", "w"]}


def test_a_claim_takes_only_the_volume_with_a_claim_ref_to_it():
    mine = {"namespace": "default", "name": "c", "uid": "uid-c"}
    volumes = volume("v"), volume("mine", "9Gi", "a", claimRef=mine, phase="Bound")
    assert given(claiming("x", "c"), claim("c"), STATIC, *volumes) == {"c": ["mine", ""]}
    stale = volume("stale", claimRef={**mine, "uid": "older"})
    assert given(claiming("x", "c"), claim("c"), STATIC, stale) == {"c": ["", ""]}


def test_a_missing_volume_is_provisioned_where_the_storage_class_allows_it():
    zones = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]
    assert reasons(claiming("x", "c"), claim("c"), storage_class(allowedTopologies=zones)) == [
        (),
        (BIND_CONFLICT,),
    ]
    assert reasons(claiming("x", "c"), claim("c"), storage_class(allowedTopologies=[{}]))[0] == (
        BIND_CONFLICT,
    )
    assert reasons(claiming("x", "c"), claim("c"), STATIC) == [(BIND_CONFLICT,), (BIND_CONFLICT,)]
    assert reasons(claiming("x", "c"), claim("c"), storage_class()) == [(), ()]


def test_a_claim_with_a_selected_node_is_provisioned_on_that_node_only():
    there = claim("c", metadata={"annotations": {"volume.kubernetes.io/selected-node": "b"}})
    assert reasons(claiming("x", "c"), there, storage_class()) == [(BIND_CONFLICT,), ()]
    gone = claim("c", metadata={"annotations": {"volume.kubernetes.io/selected-node": "gone"}})
    assert reasons(claiming("x", "c"), gone, storage_class()) == [(BIND_CONFLICT,), (BIND_CONFLICT,)]


def test_the_selected_node_of_a_claim_must_still_satisfy_topology_and_capacity():
    there = claim("c", metadata={"annotations": {"volume.kubernetes.io/selected-node": "b"}})
    zones = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]
    elsewhere = storage_class(allowedTopologies=zones)
    assert reasons(claiming("x", "c"), there, elsewhere) == [(BIND_CONFLICT,), (BIND_CONFLICT,)]
    driver = msgspec.convert({"metadata": {"name": DRIVER}, "spec": {"storageCapacity": True}}, CSIDriver)
    objects = there, storage_class(), driver
    assert reasons(claiming("x", "c"), *objects) == [(BIND_CONFLICT,), (NOT_ENOUGH_SPACE,)]
    assert reasons(claiming("x", "c"), *objects, room("r", "b", capacity="1Gi")) == [(BIND_CONFLICT,), ()]


def test_a_driver_with_storage_capacity_must_report_enough_of_it():
    driver = msgspec.convert({"metadata": {"name": DRIVER}, "spec": {"storageCapacity": True}}, CSIDriver)
    late, wish = storage_class(), claim("c", size="2Gi")

    def at(*objects):
        return reasons(claiming("x", "c"), wish, late, *objects)

    assert at(driver, room("r", "a", capacity="2Gi")) == [(), (NOT_ENOUGH_SPACE,)]
    assert at(driver, room("r", "a", capacity="9Gi", maximumVolumeSize="1Gi")) == [(NOT_ENOUGH_SPACE,)] * 2
    assert at(driver, room("r", "a", capacity="9Gi", storageClassName="fast")) == [(NOT_ENOUGH_SPACE,)] * 2
    assert (
        at(driver, room("r", "a"), room("s", "b", capacity="9Gi", nodeTopology=None))
        == [(NOT_ENOUGH_SPACE,)] * 2
    )
    silent = msgspec.convert({"metadata": {"name": DRIVER}}, CSIDriver)
    assert at(silent) == [(), ()]
    sizeless = claim("c", resources={})
    assert reasons(claiming("x", "c"), sizeless, late, driver) == [(), ()]


def test_the_first_claim_that_cannot_be_provisioned_gives_the_reason():
    driver = msgspec.convert({"metadata": {"name": DRIVER}, "spec": {"storageCapacity": True}}, CSIDriver)
    claims = claim("big", size="9Gi"), claim("small", storageClassName="none", size="1Gi")
    none = storage_class("none", provisioner="kubernetes.io/no-provisioner")
    assert reasons(claiming("x", "big", "small"), *claims, storage_class(), none, driver)[0] == (
        BIND_CONFLICT,
    )
