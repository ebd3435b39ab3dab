"""Gangs and queues in numbers: counted from change to change, they are what a fresh count says."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from batchsched.controllers.status.observed import ObservedState
from batchsched.controllers.status.tally import Tally
from tests.controllers.status.office import known
from tests.session.scenario import group, queue
from tests.state.objects import ended, leaving, node, pod

KINDS = ("wait", "bound", "runs", "leaves", "ended", "gone", "assume", "forget")
GANGS = ("", "a", "b")


def numbers(tally: Tally) -> Any:
    """Everything that is not zero."""
    return (
        {
            key: (set(one.waiting), dict(one.placed), one.queue, one.pending)
            for key, one in tally.gangs.items()
        },
        {name: +usage for name, usage in tally.usage.items() if any(usage.values())},
        {name: +wanted for name, wanted in tally.wanted.items() if any(wanted.values())},
        +tally.capacity,
        +tally.pending,
        set(tally.queues),
    )


def fresh(cache: ObservedState) -> Tally:
    tally = Tally(cache)
    tally.sync()
    return tally


class Story:
    """Things that happen to a cache."""

    def __init__(self) -> None:
        self.cache = ObservedState(["batchsched"])
        self.cache.put(node("n0"))
        self.version = 0

    def pod(self, at: int, gang: str, kind: str) -> None:
        self.version += 1
        name = f"{gang or 'solo'}-{at}"
        key = f"team/{name}"
        there = self.cache.get("pods", key)
        if kind == "gone":
            if there is not None:
                self.cache.remove(there)
        elif kind == "assume":
            self.cache.assume(key, "n0", 0.0)
        elif kind == "forget":
            self.cache.forget(key, "n0")
        else:
            on = "" if kind == "wait" else "n0"
            labels = {"scheduling.batchsched.dev/queue": f"q{self.version % 2}"}
            made = pod(name, self.version, group=gang, on=on, labels=labels)
            done = {"leaves": leaving, "ended": ended, "runs": lambda one: ended(one, "Running")}
            self.cache.put(done.get(kind, lambda one: one)(made))

    def node(self, at: int, cpu: int) -> None:
        self.version += 1
        there = self.cache.get("nodes", f"m{at}")
        if cpu:
            self.cache.put(node(f"m{at}", self.version, cpu=cpu))
        elif there is not None:
            self.cache.remove(there)

    def group(self, gang: str, minimum: int, queue_name: str) -> None:
        there = self.cache.get("pod_groups", f"team/{gang}")
        if not minimum and there is not None:
            self.cache.remove(there)
        elif minimum:
            self.cache.put(group(gang, minimum, queue=queue_name))


pods = st.tuples(st.just("pod"), st.integers(0, 3), st.sampled_from(GANGS), st.sampled_from(KINDS))
nodes = st.tuples(st.just("node"), st.integers(0, 2), st.integers(0, 3))
groups = st.tuples(
    st.just("group"), st.sampled_from(GANGS[1:]), st.integers(0, 3), st.sampled_from(("q0", "q1"))
)


@given(st.lists(st.one_of(pods, groups, nodes), max_size=40), st.integers(1, 7))
def test_counted_from_change_to_change_it_is_what_a_fresh_count_says(happens, every):
    story = Story()
    tally = fresh(story.cache)
    for number, (what, *how) in enumerate(happens):
        getattr(story, what)(*how)
        if number % every == 0:
            tally.sync()
    tally.sync()
    assert numbers(tally) == numbers(fresh(story.cache))


def test_gang_is_counted_where_its_pod_group_says():
    cache = ObservedState(["batchsched"])
    cache.put(node("n0"))
    for at in range(3):
        cache.put(pod(f"bert-{at}", group="bert", on="n0" if at < 2 else "", uid=f"u{at}"))
    tally = fresh(cache)
    assert tally.usage["default"]["cpu"] == 2000
    cache.put(group("bert", 3, queue="ml"))
    assert "team/bert" in tally.sync()
    assert +tally.usage["default"] == Counter()
    assert tally.usage["ml"]["cpu"] == 2000
    assert tally.wanted["ml"]["cpu"] == 1000
    assert tally.pending["ml"] == 1
    cache.put(pod("bert-2", group="bert", on="n0", uid="u2"))
    tally.sync()
    assert tally.pending["ml"] == 0


def test_pods_of_others_count_against_no_queue():
    cache = ObservedState(["batchsched"])
    cache.put(node("n0"))
    theirs = pod("theirs", on="n0")
    cache.put(replace(theirs, spec=replace(theirs.spec, scheduler_name="default-scheduler")))
    assert not fresh(cache).usage


def test_queues_without_a_place_in_the_tree_are_known():
    cache = ObservedState(["batchsched"])
    cache.put(known(queue("lost", parent="absent")))
    assert set(fresh(cache).queues) == {"lost"}
