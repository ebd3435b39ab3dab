"""A gang requires its preferred topology level until `preferredWaitSeconds` after its creation."""

import msgspec
import pytest

from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.snapshot import Snapshot
from batchsched.session.explanation.explain import explain_refusals
from batchsched.session.explanation.verification import DecidedInput
from batchsched.session.session import Session
from tests.session.scenario import (
    NOW,
    alone,
    cluster,
    gang,
    group,
    node,
    placed,
    pod,
    profile,
    schedule,
    topology,
)

RACKS = [node(f"n{at}", {"rack": f"r{at // 2}", "block": "b"}, gpu=2) for at in range(4)]
LEVELS = (topology("block", "rack"),)
WAITING = {"preferred": "rack", "preferredWaitSeconds": 600}
WAYS = {"solver": profile(), "pod by pod": profile(solver={"enabled": False})}


def six_pods(age: float, **stated) -> Snapshot:
    return cluster(RACKS, gang("g", 6, age=age, topology=WAITING | stated), topologies=LEVELS)


@pytest.mark.parametrize("way", WAYS)
def test_gang_waits_for_its_preferred_level_and_is_then_placed_without_it(way):
    assert not placed(schedule(six_pods(age=599), WAYS[way]))
    assert len(placed(schedule(six_pods(age=600), WAYS[way]))) == 6


def test_gang_that_fits_into_its_preferred_level_does_not_wait():
    small = cluster(RACKS, gang("g", 4, topology=WAITING), topologies=LEVELS)
    assert len(set(placed(schedule(small)).values())) == 2


def test_required_level_is_kept_after_the_wait():
    other = node("n9", {"rack": "r9", "block": "c"}, gpu=2)
    stated = WAITING | {"required": "block"}
    snapshot = cluster([*RACKS, other], gang("g", 10, age=9000, topology=stated), topologies=LEVELS)
    assert not placed(schedule(snapshot))


def test_narrower_required_level_is_kept_during_the_wait_for_a_wider_one():
    stated = {"required": "rack", "preferred": "block", "preferredWaitSeconds": 600}
    assert not placed(schedule(six_pods(age=0, **stated)))


def test_subgroup_waits_for_its_own_preferred_level():
    def waiting(age: float) -> Snapshot:
        members = tuple(pod(f"g-{at}", group="g", sub="workers", age=age, gpu=1) for at in range(6))
        subs = [{"name": "workers", "minMember": 6, "topology": WAITING}]
        groups = (group("g", age=age, subGroups=subs),)
        return cluster(RACKS, Snapshot(pods=members, pod_groups=groups), topologies=LEVELS)

    assert not placed(schedule(waiting(0)))
    assert len(placed(schedule(waiting(700)))) == 6


def test_refusal_states_until_when_the_preferred_level_is_required():
    (refusal,) = schedule(six_pods(age=0)).refusals
    assert refusal.reason == "InsufficientTopologyCapacity"
    assert "its preferred level rack is required until 2023-11-14T22:23:20Z" in refusal.message


def test_explanation_proposes_to_end_the_wait():
    snapshot, settings = six_pods(age=0), profile()
    decision = schedule(snapshot, settings)
    (refusal,) = explain_refusals(DecidedInput(snapshot, settings, NOW, 0, decision)).refusals
    assert refusal.verified
    assert msgspec.to_builtins(refusal.changes) == (
        {"set": "PodGroup/team/g", "path": "/spec/topology/preferredWaitSeconds", "value": None},
    )


def test_following_session_decides_as_a_new_one_while_waits_end():
    waits = [
        gang(f"g{number}", 3, topology=WAITING | {"preferredWaitSeconds": 100 * number})
        for number in range(1, 4)
    ]
    busy = alone(6, gpu=1)
    snapshot = cluster(RACKS, *waits, busy, topologies=LEVELS)
    session = Session(snapshot, profile())
    for later in (0.0, 99.0, 100.0, 150.0, 250.0, 300.0, 1000.0):
        assert session.decide(NOW + later, 0) == schedule(snapshot, profile(), NOW + later), later


def test_wait_without_a_preferred_level_is_refused():
    with pytest.raises(ValueError, match="preferredWaitSeconds: state the preferred level"):
        PodGroup.model_validate(
            {"metadata": {"name": "g"}, "spec": {"topology": {"preferredWaitSeconds": 60}}}
        )
