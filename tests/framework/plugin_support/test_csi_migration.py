"""In-tree volumes translated to CSI, against the rules of k8s.io/csi-translation-lib."""

import msgspec
import pytest

from batchsched.api.core.selector import NodeSelector
from batchsched.api.core.volume import CSINode, PersistentVolume, Volume
from batchsched.framework.plugin_support.csi_migration import (
    AZURE,
    EBS,
    GCE,
    csi_handle_of_inline_volume,
    csi_handle_of_persistent_volume,
    migrated_plugins,
    migrated_volume_kind,
    translate_node_affinity_to_csi,
)

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE, OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"


def volume(labels=None, affinity=None, **source):
    spec = {**source}
    if affinity is not None:
        spec["nodeAffinity"] = {"required": affinity}
    return msgspec.convert(
        {"metadata": {"name": "v", "labels": labels or {}}, "spec": spec}, PersistentVolume
    )


def mounted(**source):
    return msgspec.convert({"name": "v", **source}, Volume)


def terms(*expressions):
    return {"nodeSelectorTerms": [{"matchExpressions": [dict(one) for one in expressions]}]}


def within(key, *values):
    return {"key": key, "operator": "In", "values": list(values)}


def selector(*expressions):
    return msgspec.convert(terms(*expressions), NodeSelector)


@pytest.mark.parametrize(
    "labels, handle",
    [
        ({}, "zones/UNSPECIFIED"),
        ({ZONE: "us-east1-b"}, "zones/us-east1-b"),
        ({ZONE: "us-east1-b", OLD_ZONE: "us-east1-c"}, "zones/us-east1-c"),
        ({ZONE: "us-east1-b__us-east1-c"}, "regions/us-east1"),
    ],
    ids=["no label", "label", "both labels", "several zones"],
)
def test_the_handle_of_a_gce_disk_contains_the_zone_or_region_of_its_labels(labels, handle):
    found = csi_handle_of_persistent_volume(volume(labels, gcePersistentDisk={"pdName": "d"}))
    assert found == f"projects/UNSPECIFIED/{handle}/disks/d"


@pytest.mark.parametrize("zones", ["a__b", "us-east1-b__us-west1-a"], ids=["no zones", "two regions"])
def test_a_gce_disk_in_zones_without_a_common_region_has_no_handle(zones):
    assert csi_handle_of_persistent_volume(volume({ZONE: zones}, gcePersistentDisk={"pdName": "d"})) is None


def test_the_handle_of_an_inline_gce_disk_has_no_zone():
    assert csi_handle_of_inline_volume(mounted(gcePersistentDisk={"pdName": "d"})) == (
        "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"
    )


@pytest.mark.parametrize(
    "stated, handle",
    [
        ("vol-1", "vol-1"),
        ("odd", "odd"),
        ("aws://z/vol-1", "vol-1"),
        ("aws:///vol-1", "vol-1"),
        ("aws://z/d", None),
    ],
    ids=["bare", "any bare", "with zone", "without zone", "no volume"],
)
def test_an_ebs_volume_id_may_include_its_zone(stated, handle):
    assert csi_handle_of_inline_volume(mounted(awsElasticBlockStore={"volumeID": stated})) == handle


def test_only_managed_azure_disks_have_a_handle():
    assert csi_handle_of_inline_volume(mounted(azureDisk={"diskURI": "/d", "kind": "managed"})) == "/d"
    assert csi_handle_of_inline_volume(mounted(azureDisk={"diskURI": "/d", "kind": "Shared"})) is None


def test_azure_file_and_vsphere_volumes_are_not_migrated():
    assert migrated_volume_kind(mounted(azureFile={})) is None
    assert migrated_volume_kind(mounted(vsphereVolume={})) is None
    assert mounted(vsphereVolume={}).is_in_tree


def test_migrated_plugins_are_read_from_the_annotation_of_the_csi_node():
    key = "storage.alpha.kubernetes.io/migrated-plugins"
    stated = {"metadata": {"annotations": {key: "kubernetes.io/aws-ebs,kubernetes.io/azure-file"}}}
    assert migrated_plugins(msgspec.convert(stated, CSINode)) == {"kubernetes.io/aws-ebs"}
    assert migrated_plugins(None) == frozenset()


def test_zones_of_an_affinity_are_translated_to_the_label_of_the_driver():
    stated = volume(affinity=terms(within(ZONE, "a"), within(REGION, "r")), awsElasticBlockStore={})
    assert translate_node_affinity_to_csi(stated, EBS) == selector(within(EBS.zone, "a"), within(REGION, "r"))


def test_beta_regions_of_an_affinity_are_translated_to_the_stable_label():
    stated = volume(affinity=terms(within(OLD_ZONE, "a"), within(OLD_REGION, "r")), gcePersistentDisk={})
    assert translate_node_affinity_to_csi(stated, GCE) == selector(within(GCE.zone, "a"), within(REGION, "r"))


def test_zones_of_labels_are_added_to_an_affinity_without_zones():
    stated = volume({ZONE: "b__a"}, affinity=terms(within("disk", "ssd")), gcePersistentDisk={})
    assert translate_node_affinity_to_csi(stated, GCE) == selector(
        within("disk", "ssd"), within(GCE.zone, "a", "b")
    )
    assert translate_node_affinity_to_csi(volume({OLD_ZONE: "a"}, gcePersistentDisk={}), GCE) == selector(
        within(GCE.zone, "a")
    )


def test_a_volume_without_zones_has_no_node_affinity():
    assert translate_node_affinity_to_csi(volume({ZONE: ""}, gcePersistentDisk={}), GCE) is None


def test_the_affinity_of_azure_disks_is_not_translated():
    stated = volume({ZONE: "a"}, affinity=terms(within(ZONE, "a")), azureDisk={})
    assert translate_node_affinity_to_csi(stated, AZURE) == selector(within(ZONE, "a"))
