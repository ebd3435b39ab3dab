"""How many gangs and pod specs take part in a session, and the shares of namespaces in it."""

import contextlib
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.pod import Pod
from batchsched.runner.session_window import SPECS_PER_GANG, SessionGangSelector
from batchsched.scheduling_queue.entity import Entity
from batchsched.scheduling_queue.queue import SchedulingQueue
from tests.scheduling_queue.entities import pod, queue, standard_pipeline
from tests.service.town import Town, fail_sessions_with
from tests.session.scenario import cluster, gang, node, nodes, profile
from tests.session.scenario import pod as requesting
from tests.session.test_reservations import running


def of_namespace(namespace: str, one: Pod) -> Pod:
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, namespace=namespace))


def arrived(*pods: Pod) -> SchedulingQueue:
    made = queue(pipeline=standard_pipeline())
    for at, one in enumerate(pods):
        made.add_pod(one, float(at))
    return made


def own_spec(pods: Iterable[Pod]) -> set[Hashable]:
    """Give each pod a spec of its own."""
    return {one.key for one in pods}


def one_spec(pods: Iterable[Pod]) -> set[Hashable]:
    return {"spec" for _ in pods}


def selected(
    window: SessionGangSelector, made: SchedulingQueue, distinct_spec_numbers=one_spec
) -> list[Entity]:
    entities: dict[str, Entity] = {}
    window.select_gangs(made, entities, 1000.0, distinct_spec_numbers)
    return list(entities.values())


def flood(namespace: str, count: int, priority: int = 0) -> list[Pod]:
    return [of_namespace(namespace, pod(f"{namespace}-{at}", priority=priority)) for at in range(count)]


def test_session_takes_gangs_in_the_order_of_the_queue_if_all_are_in_one_namespace():
    taken = selected(SessionGangSelector(3, 5.0), arrived(*flood("a", 5)))
    assert [entity.identity for entity in taken] == ["pod/a/a-0", "pod/a/a-1", "pod/a/a-2"]


def test_pod_takes_part_in_the_next_session_although_another_namespace_submitted_thousands_before():
    taken = selected(SessionGangSelector(100, 5.0), arrived(*flood("flood", 2000), *flood("b", 1)))
    assert Counter(entity.namespace for entity in taken) == {"flood": 99, "b": 1}


def test_share_that_a_namespace_does_not_use_is_available_to_others():
    taken = selected(SessionGangSelector(10, 5.0), arrived(*flood("a", 20), *flood("b", 2), *flood("c", 20)))
    assert len(taken) == 10
    assert Counter(entity.namespace for entity in taken)["b"] == 2


def test_no_share_lets_a_gang_overtake_a_gang_of_a_higher_priority():
    taken = selected(SessionGangSelector(4, 5.0), arrived(*flood("low", 4), *flood("high", 6, priority=1)))
    assert {entity.namespace for entity in taken} == {"high"}


def test_session_ends_before_more_different_specs_than_its_limit():
    pods = [requesting(f"a-{at}", group="g", cpu=f"{at}m") for at in range(1, 50)]
    big = queue(pipeline=standard_pipeline())
    for one in [*pods, requesting("alone", cpu="1m"), requesting("later", cpu="2m")]:
        big.add_pod(one, 0.0)
    window = SessionGangSelector(10, 5.0)
    taken = selected(window, big, own_spec)
    assert len(pods) > SPECS_PER_GANG * window.gangs
    assert [len(entity.pods) for entity in taken] == [len(pods)]


def test_namespace_with_many_specs_leaves_half_of_the_session_to_another_one():
    made = queue(pipeline=standard_pipeline())
    for at in range(120):
        made.add_pod(of_namespace("a", requesting(f"a-{at}", group=f"g{at // 4}")), 0.0)
    for one in flood("b", 100):
        made.add_pod(one, 1.0)
    taken = selected(
        SessionGangSelector(20, 5.0),
        made,
        lambda pods: {one.key if one.namespace == "a" else "b" for one in pods},
    )
    # The specs of ten gangs of `a` fill the session; half of them are its share.
    assert Counter(entity.namespace for entity in taken) == {"a": 10, "b": 10}


def sizes(seconds: Sequence[float], *, arriving: str = "a", count: int = 1000) -> list[int]:
    """Run a session for each duration over a flood of namespace `a`; return the limits on gangs afterwards."""
    window, made, result = SessionGangSelector(500, 5.0), arrived(*flood("a", count)), []
    for duration in seconds:
        window.adjust_max_gangs(made.active_namespaces())
        selected(window, made)
        window.record_duration(duration)
        window.adjust_max_gangs({"a", arriving})
        result.append(window.gangs)
    return result


def test_session_after_a_long_one_takes_fewer_gangs_and_later_ones_more_again():
    assert sizes([20.0, 5.0, 1.0, 1.0], count=2000) == [125, 250, 500, 500]


def test_session_is_short_while_gangs_of_other_namespaces_wait():
    assert sizes([1.0, 1.0, 0.5], arriving="b") == [250, 125, 250]


@pytest.mark.parametrize("small, size", [(1, 50), (200, 50), (250, 500)])
def test_session_is_short_while_gangs_wait_of_a_namespace_that_had_less_than_its_share(small, size):
    window, made = SessionGangSelector(500, 5.0), arrived(*flood("a", 1000), *flood("b", small))
    assert Counter(entity.namespace for entity in selected(window, made)) == {"a": 500 - small, "b": small}
    window.record_duration(5.0)
    window.adjust_max_gangs({"a", "b"})
    assert window.gangs == size


def test_session_that_takes_long_without_any_gang_keeps_a_tenth_of_its_size():
    assert sizes([60.0, 60.0, 60.0], arriving="b") == [50, 50, 50]


def test_gang_that_makes_sessions_fail_is_alone_in_the_end():
    window, made = SessionGangSelector(500, 5.0), arrived(*flood("a", 2000))
    taken = []
    for _ in range(10):
        taken.append(len(selected(window, made)))
        window.halve_gangs_after_failure()
        window.adjust_max_gangs({"a", "b"})
    assert taken == [500, 250, 125, 62, 31, 15, 7, 3, 1, 1]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), min_size=1, max_size=40),
    st.integers(1, 12),
)
def test_each_namespace_gets_its_share_and_no_priority_is_inverted(submitted, size):
    pods = [
        of_namespace(namespace, pod(f"p{at}", priority=priority))
        for at, (namespace, priority) in enumerate(submitted)
    ]
    made = arrived(*pods)
    namespaces = len({namespace for namespace, _ in submitted})
    taken = selected(SessionGangSelector(size, 5.0), made)
    left = [entity for entity in made.entities() if entity not in taken]
    assert len(taken) == min(size, len(pods))
    lowest = min(entity.highest_pod_priority for entity in taken)
    assert all(entity.highest_pod_priority <= lowest for entity in left)
    # Of the priority at which the session ends, a namespace with waiting gangs has at least its share.
    above = sum(entity.highest_pod_priority > lowest for entity in taken)
    counts = Counter(entity.namespace for entity in taken)
    for entity in left:
        if entity.highest_pod_priority == lowest:
            assert counts[entity.namespace] >= (size - above) // namespaces


@pytest.mark.parametrize("selection", ["weight", "ordered"])
async def test_pods_of_a_flood_and_of_another_namespace_are_all_bound(selection):
    pods = [of_namespace("flood", requesting(f"f{at}", cpu="10m")) for at in range(40)]
    other = of_namespace("quiet", requesting("q", cpu="10m"))
    town = Town(cluster(nodes(4), pods=(*pods, other)), profile(session_window=10, selection=selection))
    await town.turn()
    assert "q" in town.bound
    assert len(town.bound) == 10
    await town.turns(5)
    assert len(town.bound) == 41


def town_with_waiting_head(**settings: Any) -> Town:
    """A node of eight GPUs, of which four are free until the head, a gang of eight, may start in an hour."""
    began = running("before", 3600, "n0", "n0", "n0", "n0")
    return Town(
        cluster(nodes(1, gpu=8), began, gang("head", 8, age=50)), profile(backfill="easy", **settings)
    )


@pytest.mark.parametrize("selection", ["weight", "ordered"])
async def test_head_keeps_its_reservation_although_other_gangs_fill_the_session(selection):
    town = town_with_waiting_head(session_window=3, selection=selection)
    await town.turns(2)
    town.make(requesting(f"late-{at}", gpu=1) for at in range(6))
    await town.turns(6)
    assert {one.pod_group for decision in town.decisions for one in decision.reservations} == {"team/head"}
    assert set(town.bound) == {f"before-{at}" for at in range(4)}


async def test_head_is_alone_in_no_session():
    town = town_with_waiting_head(session_window=3)
    await town.turns(10)
    assert len(town.decisions) == 1


async def test_gang_that_makes_sessions_fail_is_found_although_a_head_waits(monkeypatch):
    town = town_with_waiting_head(session_window=3)
    await town.turns(2)
    fail_sessions_with(monkeypatch, "team/head")
    town.make([requesting("late", gpu=1)])
    for _ in range(30):
        with contextlib.suppress(ExceptionGroup):
            await town.turn(1)
    assert "late" in town.bound


@pytest.mark.parametrize("selection", ["weight", "ordered"])
async def test_next_gang_in_order_reserves_a_start_after_the_head_is_deleted(selection):
    town = town_with_waiting_head(selection=selection)
    town.add(gang("second", 8, age=40))
    await town.turns(2)
    for at in range(8):
        town.delete(f"head-{at}")
    await town.turns(2)
    town.make([requesting("late", gpu=1)])
    await town.turns(4)
    assert [one.pod_group for one in town.decisions[-1].reservations] == ["team/second"]
    assert "late" not in town.bound


@pytest.mark.parametrize("selection", ["weight", "ordered"])
async def test_next_gang_in_order_reserves_a_start_after_the_head_has_started(selection):
    """What let the head start did not help the gang behind it, so that no event makes it active."""
    sizes = node("n0", gpu=4), node("n1", gpu=8, memory="1Gi")
    began = [running(f"on-{name}", 3600, *[name] * 4) for name in ("n0", "n1")]
    head = gang("head", 4, age=50, requests={"gpu": 1, "memory": "10Gi"})
    second = gang("second", 1, age=40, requests={"gpu": 8})
    town = Town(cluster(sizes, *began, head, second), profile(backfill="easy", selection=selection))
    await town.turns(2)
    for at in range(4):
        town.delete(f"on-n0-{at}")
    await town.turns(4)
    assert "head-0" in town.bound
    town.make([requesting("late", gpu=1)])
    await town.turns(4)
    assert [one.pod_group for one in town.decisions[-1].reservations] == ["team/second"]
    assert "late" not in town.bound
