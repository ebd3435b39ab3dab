"""What holds for every Filter and Score that looks at nodes one by one, drawn at random."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.errors import PluginError
from batchsched.framework.constrain import ALL_NODES, CandidatePods, CandidateSet
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.plugin_support.volume_listers import storage_objects
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.status import Code
from batchsched.plugins.balanced_allocation import BalancedAllocation
from batchsched.plugins.image_locality import ImageLocality
from batchsched.plugins.node_affinity import NodeAffinity
from batchsched.plugins.node_name import NodeName
from batchsched.plugins.node_ports import NodePorts
from batchsched.plugins.node_resources_fit import NodeResourcesFit
from batchsched.plugins.node_unschedulable import NodeUnschedulable
from batchsched.plugins.node_volume_limits import NodeVolumeLimits
from batchsched.plugins.taint_toleration import TaintToleration
from batchsched.plugins.volume_binding import VolumeBinding
from batchsched.plugins.volume_binding.claims import bound_and_delayed_volume_claims
from batchsched.plugins.volume_restrictions import VolumeRestrictions
from batchsched.plugins.volume_zone import VolumeZone
from tests.plugins.cluster import class_of, drawn_cases, filtered, land, named, table_of

FILTERS: tuple[Any, ...] = (
    NodeName,
    NodeUnschedulable,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
)
# A full node accepts a pod if its volumes are attached already, so a pod placed without fitting may help others.
# The tests of the plugin check that a pod that fits helps no other pod.
LASTING = tuple(kind for kind in FILTERS if kind is not NodeVolumeLimits)
SCORES: tuple[Any, ...] = (TaintToleration, NodeAffinity, NodeResourcesFit, BalancedAllocation, ImageLocality)
BULK: tuple[Any, ...] = (NodePorts, NodeResourcesFit, VolumeRestrictions, NodeVolumeLimits, VolumeBinding)
CONSTRAINING: tuple[Any, ...] = (NodePorts, VolumeRestrictions, NodeVolumeLimits)
AREAS = ("images", "nodeaffinity", "nodename", "ports", "resources", "taints", "volumes", "volumes")


def verdicts(plugin: Any, one: Any, made: Any) -> list[tuple[Any, ...]]:
    found = filtered(plugin, one, made)
    return [(found.reasons_at(at), bool(found.unresolvable[at])) for at in range(len(made.nodes))]


def are_equal_to(plugin: Any, one: Any, other: Any) -> bool:
    pipeline = Pipeline([plugin])
    return pipeline.signature(one) == pipeline.signature(other)


@st.composite
def areas(draw: Any) -> Any:
    """A case of a few areas, and one more pod of the same kind and namespace; classes never span namespaces."""
    chosen = draw(st.lists(st.sampled_from(AREAS), min_size=1, max_size=3))
    case = draw(drawn_cases(*sorted({*chosen})))
    other = draw(st.sampled_from([case.pod, *case.pods]))
    metadata = msgspec.structs.replace(
        other.metadata, name="other", uid="uid-other", namespace=case.pod.namespace
    )
    return table_of(case), case.pod, msgspec.structs.replace(other, metadata=metadata)


@pytest.mark.properties
@given(drawn=areas())
def test_pods_with_equal_signatures_have_equal_results_on_every_node(drawn):
    made, one, other = drawn
    for kind in FILTERS:
        if are_equal_to(kind(), one, other):
            assert verdicts(kind(), one, made) == verdicts(kind(), other, made), kind.name
    for kind in SCORES:
        if are_equal_to(kind(), one, other):
            answers = [
                kind().score(class_of(made, each), made.all_nodes_view(), CycleState()).tolist()
                for each in (one, other)
            ]
            assert answers[0] == answers[1], kind.name


@pytest.mark.properties
@given(drawn=areas(), at=st.integers(0, 3))
def test_a_refused_node_stays_refused_after_any_placement(drawn, at):
    made, one, other = drawn
    before = {kind: filtered(kind(), one, made).feasible_mask for kind in LASTING}
    land(made, other, made.names[at % len(made.nodes)])
    for kind in LASTING:
        assert not (filtered(kind(), one, made).feasible_mask & ~before[kind]).any(), kind.name


@pytest.mark.properties
@given(drawn=areas(), data=st.data())
def test_several_pods_are_admitted_exactly_when_each_one_passes_the_filter(drawn, data):
    made, one, _ = drawn
    counts = np.asarray([data.draw(st.integers(0, 2)) for _ in made.nodes], np.int32)
    places = np.arange(len(made.nodes), dtype=np.int32)
    wish = class_of(made, one)
    asked = [kind for kind in BULK if decides_about(kind(), wish, made)]
    admitted = {kind: kind().allows_bulk_placement(wish, made, places, counts) for kind in asked}
    stepwise = dict.fromkeys(asked, True)
    for at in np.repeat(places, counts).tolist():
        for kind in asked:
            stepwise[kind] &= bool(filtered(kind(), one, made, made.node_view(at)).feasible_mask[0])
        land(made, named(one, f"landed-{len(made.pod_table)}"), made.names[at])
    if VolumeBinding in asked and counts.sum() > 1 and has_delayed_claims(one, made):
        # The first pod decides where the claims are bound, so that the others have to be filtered after its Reserve.
        stepwise[VolumeBinding] = False
    assert admitted == stepwise


@pytest.mark.properties
@given(drawn=areas(), data=st.data())
def test_rows_hold_for_every_placement_that_the_filters_accept(drawn, data):
    made, *wishes = drawn
    batch = CandidateSet(
        [CandidatePods(at, class_of(made, one), at, 3, False) for at, one in enumerate(wishes)]
    )
    rows = [row for kind in CONSTRAINING for row in kind().constrain(batch, made.all_nodes_view())]
    placed = np.zeros((len(wishes), len(made.nodes)), np.int64)
    for step in range(data.draw(st.integers(0, 6))):
        index = data.draw(st.integers(0, len(wishes) - 1))
        at = data.draw(st.integers(0, len(made.nodes) - 1))
        if all(lets_pass(kind(), wishes[index], made, at) for kind in CONSTRAINING):
            land(made, named(wishes[index], f"placed-{step}"), made.names[at])
            placed[index, at] += 1
    for row in rows:
        left = row.coefficients @ placed[row.classes]
        assert ((left.sum() if row.partition == ALL_NODES else left) <= row.right).all()


def decides_about(plugin: Any, wish: Any, made: Any) -> bool:
    """Tell whether PreFilter passes or skips a pod, and Filter does not fail on it."""
    try:
        filtered(plugin, wish.pod, made)
    except PluginError:
        return False
    if not hasattr(plugin, "prefilter"):
        return True
    return plugin.prefilter(wish, made.all_nodes_view(), CycleState()).status.code in (
        Code.SUCCESS,
        Code.SKIP,
    )


def lets_pass(plugin: Any, one: Any, made: Any, at: int) -> bool:
    """Tell whether a Filter lets a pod have a node. A Filter that fails refuses the pod."""
    try:
        return bool(filtered(plugin, one, made, made.node_view(at)).feasible_mask[0])
    except PluginError:
        return False


def has_delayed_claims(one: Any, made: Any) -> bool:
    """Tell whether a pod has claims that are bound when it is scheduled."""
    claims = bound_and_delayed_volume_claims(one, storage_objects(made))
    return claims is not None and bool(claims.delayed)
