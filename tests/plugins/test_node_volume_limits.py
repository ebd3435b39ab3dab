from dataclasses import replace
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from typing_extensions import override

from batchsched.config.kubernetes_release import RELEASES
from batchsched.errors import PluginError
from batchsched.framework.constrain import EVERY_NODE, CandidatePods, CandidateSet
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.plugin_support.volume_listers import storage_objects
from batchsched.framework.status import Code
from batchsched.plugins.node_volume_limits import TOO_MANY_VOLUMES, NodeVolumeLimits
from batchsched.solver.problem import UNLIMITED
from tests.plugins.cluster import class_of, filtered, land, node, pod, refusals, take
from tests.plugins.storage import (
    attachment,
    claim,
    claiming,
    csi_node,
    csi_volume,
    driver,
    storage_class,
    stored,
)

CLAIMS = [claim(f"c{at}", f"v{at}") for at in range(4)]
VOLUMES = [csi_volume(f"v{at}") for at in range(4)]


def refused(made, *claims):
    return list(refusals(NodeVolumeLimits(), claiming("x", *claims), made))


def ephemeral(name="x"):
    return pod(name, volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}])


def test_a_node_takes_as_many_volumes_as_its_driver_allows():
    made = stored([node("a"), node("b")], *CLAIMS, *VOLUMES, csi_node("a", 1), csi_node("b", 2))
    assert refused(made, "c0", "c1") == ["a"]
    verdict = filtered(NodeVolumeLimits(), claiming("x", "c0", "c1"), made)
    assert verdict.reasons_at(0) == (TOO_MANY_VOLUMES,)
    assert not verdict.unresolvable.any()


def test_a_volume_that_is_mounted_already_counts_once():
    made = stored([node("a")], *CLAIMS, *VOLUMES, csi_node("a", 2), a=[claiming("p", "c0", "c1")])
    assert refused(made, "c0", "c1") == []
    assert refused(made, "c2") == ["a"]


def test_two_claims_of_one_handle_are_one_volume():
    made = stored([node("a")], *CLAIMS, csi_volume("v0", "h"), csi_volume("v1", "h"), csi_node("a", 1))
    assert refused(made, "c0", "c1") == []


def test_a_node_without_a_limit_takes_any_number():
    made = stored([node("a"), node("b")], *CLAIMS, *VOLUMES, csi_node("b"))
    assert refused(made, "c0", "c1", "c2") == []


def test_attachments_count_where_no_pod_mounts_the_volume():
    pods = [claiming("p", "c0")]
    made = stored([node("a")], *CLAIMS, *VOLUMES, csi_node("a", 2), attachment("a", "v0"), a=pods)
    assert refused(made, "c1") == []
    made = stored([node("a")], *CLAIMS, *VOLUMES, csi_node("a", 2), attachment("a", "v3"), a=pods)
    assert refused(made, "c1") == ["a"]


def test_attachments_that_name_no_csi_volume_do_not_count():
    odd = [attachment("a", "gone"), attachment("a", "v0", attacher=""), attachment("b", "v0")]
    made = stored([node("a")], *CLAIMS, *VOLUMES, csi_node("a", 1), *odd)
    assert refused(made, "c1") == []


def test_a_claim_without_a_volume_counts_for_its_classs_driver():
    made = stored([node("a")], claim("n"), storage_class(), csi_node("a", 0))
    assert refused(made, "n") == ["a"]
    assert refused(stored([node("a")], claim("n"), csi_node("a", 0)), "n") == []


@pytest.mark.parametrize(
    "driver, source",
    [
        ("pd.csi.storage.gke.io", {"gcePersistentDisk": {"pdName": "d"}}),
        ("ebs.csi.aws.com", {"awsElasticBlockStore": {"volumeID": "aws://z/vol-1"}}),
        ("disk.csi.azure.com", {"azureDisk": {"diskName": "d", "diskURI": "/d"}}),
        ("cinder.csi.openstack.org", {"cinder": {"volumeID": "d"}}),
        ("pxd.portworx.com", {"portworxVolume": {"volumeID": "d"}}),
    ],
    ids=["gce", "ebs", "azure", "cinder", "portworx"],
)
@pytest.mark.parametrize("annotation", ["", "kubernetes.io/other"])
def test_in_tree_volumes_count_on_every_node_with_a_csi_node(driver, source, annotation):
    # plugins/nodevolumelimits, `isCSIMigrationOn`: a CSINode is enough in 1.36, whatever its annotation says.
    one = pod("x", volumes=[{"name": "v", **source}])
    made = stored([node("a"), node("b")], csi_node("a", 0, driver, annotation))
    assert list(refusals(NodeVolumeLimits(), one, made)) == ["a"]


@pytest.mark.parametrize(
    "source",
    [{"azureFile": {"shareName": "s"}}, {"vsphereVolume": {"volumePath": "p"}}],
    ids=["azurefile", "vsphere"],
)
def test_volume_kinds_that_are_never_migrated_do_not_count(source):
    one = pod("x", volumes=[{"name": "v", **source}])
    drivers = [csi_node("a", 0, "file.csi.azure.com"), csi_node("b", 0, "csi.vsphere.vmware.com")]
    made = stored([node("a"), node("b")], *drivers)
    assert (
        NodeVolumeLimits().prefilter(class_of(made, one), made.all_nodes_view(), CycleState()).status.code
        is Code.SUCCESS
    )
    assert refusals(NodeVolumeLimits(), one, made) == {}


def test_an_azure_disk_that_is_not_managed_is_an_error():
    one = pod("x", volumes=[{"name": "v", "azureDisk": {"diskURI": "/d", "kind": "Dedicated"}}])
    with pytest.raises(PluginError, match="from inline to csi"):
        filtered(NodeVolumeLimits(), one, stored([node("a")], csi_node("a", 0)))


def test_a_migrated_volume_counts_once_for_a_claim_and_an_inline_mount():
    disk = msgspec.convert(
        {"metadata": {"name": "v0"}, "spec": {"awsElasticBlockStore": {"volumeID": "vol-1"}}},
        type(VOLUMES[0]),
    )
    there = pod("p", volumes=[{"name": "v", "awsElasticBlockStore": {"volumeID": "aws://z/vol-1"}}])
    drivers = csi_node("a", 1, "ebs.csi.aws.com", "kubernetes.io/aws-ebs")
    assert refused(stored([node("a")], CLAIMS[0], disk, drivers, a=[there]), "c0") == []
    assert refused(stored([node("a")], CLAIMS[1], VOLUMES[1], drivers, a=[there]), "c1") == []


def test_a_missing_claim_is_an_unresolvable_refusal_of_every_node():
    made = stored([node("a"), node("b")])
    verdict = filtered(NodeVolumeLimits(), claiming("x", "c0"), made)
    assert verdict.reasons_at(1) == ('looking up PVC default/c0: persistentvolumeclaim "c0" not found',)
    assert verdict.unresolvable.all()


def test_a_missing_claim_of_an_existing_pod_is_ignored():
    made = stored([node("a")], *CLAIMS, *VOLUMES, csi_node("a", 1), a=[claiming("p", "gone")])
    assert refused(made, "c0") == []


def test_an_ephemeral_volumes_claim_must_be_the_pods_own():
    mine = {"ownerReferences": [{"controller": True, "uid": ""}]}
    made = stored([node("a")], claim("x-scratch", metadata=mine), storage_class(), csi_node("a", 0))
    assert list(refusals(NodeVolumeLimits(), ephemeral(), made)) == ["a"]
    with pytest.raises(PluginError, match="pod is not owner"):
        filtered(NodeVolumeLimits(), ephemeral(), stored([node("a")], claim("x-scratch")))


def test_a_claim_without_a_name_is_an_error():
    with pytest.raises(PluginError, match="had no name"):
        filtered(NodeVolumeLimits(), claiming("x", ""), stored([node("a")]))


def test_pods_without_volumes_are_skipped():
    made = stored([node("a")])
    assert (
        NodeVolumeLimits().prefilter(class_of(made, pod()), made.all_nodes_view(), CycleState()).status.code
        is Code.SKIP
    )
    assert NodeVolumeLimits().allows_bulk_placement(
        class_of(made, pod()), made, np.asarray([0], np.int32), np.asarray([9], np.int32)
    )


def test_pods_with_ephemeral_volumes_have_their_own_class():
    assert NodeVolumeLimits().signature(ephemeral("x")) != NodeVolumeLimits().signature(ephemeral("y"))
    assert NodeVolumeLimits().signature(claiming("x", "c")) == NodeVolumeLimits().signature(
        claiming("y", "c")
    )


def test_equal_pods_are_admitted_together_if_one_fits():
    made = stored([node("a"), node("b")], *CLAIMS, *VOLUMES, csi_node("a", 1), csi_node("b", 0))
    both, wish = np.asarray([0, 1], np.int32), class_of(made, claiming("x", "c0"))
    assert NodeVolumeLimits().allows_bulk_placement(wish, made, both, np.asarray([5, 0], np.int32))
    assert not NodeVolumeLimits().allows_bulk_placement(wish, made, both, np.asarray([5, 1], np.int32))


def batch_of(made, wishes, count=1):
    return CandidateSet(
        [CandidatePods(at, class_of(made, one), at, count, True) for at, one in enumerate(wishes)]
    )


def test_rows_leave_each_node_the_volumes_it_can_still_attach():
    drivers = csi_node("a", 2), csi_node("b")
    made = stored([node("a"), node("b")], *CLAIMS, *VOLUMES, *drivers, a=[claiming("p", "c3")])
    wishes = [claiming("x", "c0"), claiming("y", "c1", "c2"), claiming("z", "c3")]
    (row,) = NodeVolumeLimits().constrain(batch_of(made, wishes), made.all_nodes_view())
    assert (row.partition, row.classes.tolist(), row.coefficients.tolist()) == (EVERY_NODE, [0, 1], [1, 2])
    assert row.right.tolist() == [1, UNLIMITED]


NEEDS_DRIVER = driver(must_be_installed=True)


def test_a_node_without_a_driver_that_must_be_installed_is_refused():
    # plugins/nodevolumelimits, `checkCSIDriverOnNode` of 1.37
    other = csi_node("b", driver="other.example.com")
    made = stored([node("a"), node("b"), node("c")], *CLAIMS, *VOLUMES, NEEDS_DRIVER, csi_node("a"), other)
    verdict = filtered(NodeVolumeLimits(), claiming("x", "c0"), made)
    assert [verdict.reasons_at(at) for at in range(3)] == [
        (),
        ("csi.example.com CSI driver is not installed on the node",),
        ("csi.example.com CSI driver is not installed on the node",),
    ]
    assert not verdict.unresolvable.any()
    both, wish = np.asarray([0, 2], np.int32), class_of(made, claiming("x", "c0"))
    assert NodeVolumeLimits().allows_bulk_placement(wish, made, both, np.asarray([5, 0], np.int32))
    assert not NodeVolumeLimits().allows_bulk_placement(wish, made, both, np.asarray([5, 1], np.int32))


def test_a_claim_without_a_volume_needs_the_driver_of_its_class_on_the_node():
    made = stored([node("a")], claim("n"), storage_class(), NEEDS_DRIVER, csi_node("a", driver="other"))
    assert refused(made, "n") == ["a"]


@pytest.mark.parametrize(
    "objects", [(), (driver(),), (driver("other", must_be_installed=True),)], ids=["none", "off", "other"]
)
def test_other_drivers_need_not_be_installed(objects):
    assert refused(stored([node("a")], *CLAIMS, *VOLUMES, *objects), "c0") == []


def test_the_missing_driver_is_the_reason_before_a_limit_is():
    drivers = csi_node("a", 0, "other.example.com")
    volumes = csi_volume("v0"), csi_volume("v1", driver="other.example.com")
    made = stored([node("a")], *CLAIMS, *volumes, NEEDS_DRIVER, drivers)
    verdict = filtered(NodeVolumeLimits(), claiming("x", "c1", "c0"), made)
    assert verdict.reasons_at(0) == ("csi.example.com CSI driver is not installed on the node",)


def test_drivers_need_not_be_installed_in_1_36():
    made = stored([node("a")], *CLAIMS, *VOLUMES, NEEDS_DRIVER)
    made.release = RELEASES["1.36"]
    assert refused(made, "c0") == []


def test_volumes_that_pods_share_make_no_row():
    made = stored([node("a")], *CLAIMS, *VOLUMES, csi_node("a", 0))
    assert (
        NodeVolumeLimits().constrain(
            batch_of(made, [claiming("x", "c0"), claiming("y", "c0")]), made.all_nodes_view()
        )
        == []
    )
    assert NodeVolumeLimits().constrain(batch_of(made, [claiming("x", "c0")], 2), made.all_nodes_view()) == []


def test_a_pod_with_an_invalid_volume_makes_no_row():
    made = stored([node("a")], *CLAIMS, *VOLUMES, csi_node("a", 0), a=[claiming("p", "")])
    assert NodeVolumeLimits().constrain(batch_of(made, [claiming("x", "")]), made.all_nodes_view()) == []


class CountingClaims(dict):
    """Claims that count how often they are looked up."""

    lookups = 0

    @override
    def get(self, key, default=None):
        self.lookups += 1
        return super().get(key, default)


def test_the_volumes_of_a_node_are_read_again_only_after_pods_came_or_went():
    names = [f"n{at}" for at in range(8)]
    claims = [claim(f"c{at}", f"v{at}") for at in range(10)]
    volumes = [csi_volume(f"v{at}") for at in range(10)]
    there = {name: [claiming(f"p-{name}", f"c{at}")] for at, name in enumerate(names)}
    made = stored([node(name) for name in names], *claims, *volumes, *map(csi_node, names, [1] * 8), **there)
    counting = CountingClaims(storage_objects(made).claims)
    made._values_of_cluster_objects["storage"] = replace(storage_objects(made), claims=counting)
    assert refused(made, "c8") == names
    counting.lookups = 0
    assert refused(made, "c9") == names
    assert counting.lookups == 1
    take(made, there["n3"][0])
    counting.lookups = 0
    assert refused(made, "c9") == [name for name in names if name != "n3"]
    land(made, claiming("other", "c8"), "n3")
    assert refused(made, "c9") == names
    assert counting.lookups == 3


@pytest.mark.properties
@given(seed=st.integers(0, 2**32))
def test_volumes_follow_pods_and_nodes_like_a_fresh_node_table(seed):
    random = Random(seed)
    claims = [claim(f"c{at}", f"v{at}" if at else "") for at in range(5)]
    volumes = [csi_volume(f"v{at}", f"h{at // 2}") for at in range(5)]
    drivers = [csi_node(f"n{at}", random.randint(0, 2)) for at in range(4)]
    objects = (*claims, *volumes, *drivers, storage_class(), attachment("n1", "v1"), attachment("n2", "v2"))
    nodes = {f"n{at}": node(f"n{at}") for at in range(random.randint(1, 3))}
    bound = {}
    followed = stored(nodes.values(), *objects)
    for step in range(8):
        match random.choice(("land", "land", "take", "nodes")):
            case "land":
                pod = claiming(f"p{step}", *random.sample(["c0", "c1", "c2", "c3", "c4", ""], 2))
                bound[pod.key] = pod, random.choice([*nodes])
                land(followed, *bound[pod.key])
            case "take" if bound:
                take(followed, bound.pop(random.choice([*bound]))[0])
            case _:
                names = {f"n{at}" for at in range(5) if random.random() < 0.6}
                names |= {name for _, name in bound.values()} or {"n1"}
                nodes = {name: nodes.get(name) or node(name) for name in sorted(names)}
                followed.replace_all_nodes(tuple(nodes.values()))
        fresh = stored(nodes.values(), *objects)
        for pod, name in bound.values():
            land(fresh, pod, name)
        for claim_names in (("c0",), ("c1",), ("c2", "c4")):
            assert _outcome(claim_names, followed) == _outcome(claim_names, fresh)
        assert _limits_of_rows(followed) == _limits_of_rows(fresh)


def _limits_of_rows(made):
    batch = batch_of(made, [claiming("x", "c1"), claiming("y", "c4")])
    rows = NodeVolumeLimits().constrain(batch, made.all_nodes_view())
    return [(row.classes.tolist(), row.right.tolist()) for row in rows]


def _outcome(claims, made):
    try:
        return refused(made, *claims)
    except PluginError as error:
        return str(error)


WISHES = st.lists(st.sampled_from(["c0", "c1", "c2", "c3"]), min_size=1, max_size=3, unique=True)


@pytest.mark.properties
@given(
    limits=st.lists(st.integers(0, 3), min_size=1, max_size=2),
    wishes=st.lists(WISHES, min_size=2, max_size=5),
    data=st.data(),
)
def test_refused_nodes_stay_refused_after_accepted_placements_and_rows_hold(limits, wishes, data):
    nodes = [node(f"n{at}") for at in range(len(limits))]
    drivers = [csi_node(f"n{at}", limit) for at, limit in enumerate(limits)]
    made = stored(nodes, *CLAIMS, *VOLUMES, *drivers)
    pods = [claiming(f"x{at}", *claims) for at, claims in enumerate(wishes)]
    rows = NodeVolumeLimits().constrain(batch_of(made, pods), made.all_nodes_view())
    placed = np.zeros((len(pods), len(nodes)), np.int64)
    for at, one in enumerate(pods):
        before = [filtered(NodeVolumeLimits(), other, made).feasible_mask for other in pods]
        where = data.draw(st.integers(0, len(nodes) - 1))
        if not before[at][where]:
            continue
        land(made, one, made.names[where])
        placed[at, where] = 1
        after = [filtered(NodeVolumeLimits(), other, made).feasible_mask for other in pods]
        assert not any((now & ~then).any() for now, then in zip(after, before, strict=True))
    for row in rows:
        assert (row.coefficients @ placed[row.classes] <= row.right).all()
    assume(placed.any())
