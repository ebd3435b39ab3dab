"""The recorded decisions: random clusters, small bench instances, and sequences of sessions, each by name."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from batchsched.api.decision import Decision
from batchsched.api.snapshot import HeldGang, HeldGangPod, PastQueueUsage, Snapshot
from batchsched.config.schema import Profile
from batchsched.session.session import decide
from bench.pipeline.clusters import WORKLOADS
from bench.pipeline.clusters import snapshot as pipeline_snapshot
from bench.queues import snapshot as queues_snapshot
from bench.solver.instances import generate
from bench.solver.manifests import items
from tests.guards.manifests import NOW, ClusterDraw, snapshot_of
from tests.session import clusters
from tests.session.preemption.running import asked_to_leave, gone, queued_again, started_now
from tests.session.test_permit import Recorder, decide_with, refuse, wait

Settings = dict[str, Any]

ORDERED: Final[Settings] = {"selection": "ordered"}
PROFILES: Final[dict[str, Settings]] = {
    "joint": {},
    "pod-by-pod": {"solver": {"enabled": False}},
    "sampled": {"solver": {"enabled": False}, "percentageOfNodesToScore": 30},
    "aggregated": {"solver": {"exactVariables": 0}},
    "spread": {"placement": "spread"},
    "windows": {"sessionWindow": 2},
    "consolidate": {"consolidate": True},
    "no-postfilter": {"plugins": {"postFilter": {"disabled": [{"name": "*"}]}}},
    "weight-easy": {"backfill": "easy"},
    "weight-kept": {"backfill": "kept", "promiseSlowdown": 1},
    "ordered": ORDERED,
    "ordered-easy": ORDERED | {"policy": {"name": "fcfs"}, "backfill": "easy"},
    "ordered-kept": ORDERED | {"policy": {"name": "fcfs"}, "backfill": "kept", "promiseSlowdown": 1},
    "ordered-headroom": ORDERED | {"policy": {"name": "headroom"}, "backfill": "easy"},
    "ordered-blocking": ORDERED | {"policy": {"name": "sjf"}, "blocking": True},
    "wfp3": {"policy": {"name": "wfp3"}},
    "saf": ORDERED | {"policy": {"name": "saf"}},
    "f1": {"policy": {"name": "f1"}, "sessionWindow": 3},
}
QUEUE_POLICIES: Final = (
    "armada",
    "decayed-usage",
    "dominant-share",
    "drf",
    "fifo",
    "guaranteed-ratio",
    "max-min",
    "priority",
    "strict-fifo",
    "time-based",
)
EVERY_SESSION: Final = 600.0
"""Seconds between two sessions of a sequence."""


@dataclass(frozen=True, slots=True)
class Case:
    """What one decision is made from; `settings` is the profile as its author writes it."""

    name: str
    snapshot: Snapshot
    settings: Settings
    now: float = NOW
    seed: int = 0

    def decide(self) -> Decision:
        """Return the decision, through the public entry point alone."""
        return decide(self.snapshot, Profile.model_validate(self.settings), self.now, self.seed)


Decided = tuple[Case, Decision]


def families() -> dict[str, Callable[[], Iterator[Decided]]]:
    """Return what draws and decides each family of cases, by name."""
    return {
        "random": random_clusters,
        "random-queued": random_clusters_with_queue_policies,
        "victims": victims,
        "victims-solver-off": victims_pod_by_pod,
        "victims-ordered": victims_in_order,
        "fragmented": fragmented,
        "rules": rules,
        "ties": ties,
        "queue-policies": queue_policies,
        "held": held_gangs,
        "permit": permit,
        "bench": bench_instances,
        "sequences": sequences,
        "sequences-reserved": sequences_with_reservations,
    }


def _decided(case: Case) -> Decided:
    return case, case.decide()


@cache
def drawn(seed: int, **shape: Any) -> Snapshot:
    """Return a cluster of running and pending gangs; each is drawn once for all profiles."""
    return snapshot_of(ClusterDraw(seed, **shape).draw())


def busy(seed: int, **shape: Any) -> Snapshot:
    """Return a cluster in which running gangs hold a half to all of the GPUs."""
    return drawn(seed, nodes=6, filled=(0.5, 0.8, 1.0)[seed % 3], pending=4, **shape)


def every_profile(
    family: str, seeds: range, names: tuple[str, ...], make: Callable[[int], Snapshot]
) -> Iterator[Decided]:
    """Decide each cluster under each of some profiles."""
    for seed in seeds:
        for name in names:
            yield _decided(Case(f"{family}/{seed}/{name}", make(seed), PROFILES[name], seed=seed % 3))


def random_clusters() -> Iterator[Decided]:
    """The clusters of the property tests: faults in the input, gates, levels, limits, ports and affinity."""
    names = ("joint", "pod-by-pod", "ordered", "ordered-easy", "weight-kept", "windows")
    yield from every_profile("random", range(24), names, clusters.random_cluster)


def random_clusters_with_queue_policies() -> Iterator[Decided]:
    """The same clusters under the policies that divide the cluster between queues."""
    for seed in range(100, 120):
        policy = QUEUE_POLICIES[seed % len(QUEUE_POLICIES)]
        for name in ("joint", "pod-by-pod"):
            settings = PROFILES[name] | {"queuePolicy": {"name": policy}}
            case = Case(f"random-queued/{seed}/{name}-{policy}", clusters.random_cluster(seed), settings)
            yield _decided(case)


def victims() -> Iterator[Decided]:
    """Preemption and reclaim by the joint solver."""
    names = ("joint", "consolidate", "weight-easy")
    yield from every_profile("victims", range(26), names, busy)
    yield from every_profile("victims", range(26, 40), ("aggregated", "spread", "no-postfilter"), busy)


def victims_pod_by_pod() -> Iterator[Decided]:
    """Preemption by the plugin pipeline, pod by pod."""
    yield from every_profile("victims", range(45), ("pod-by-pod", "sampled"), busy)


def victims_in_order() -> Iterator[Decided]:
    """Full clusters under strict orders: reservations, backfill and blocking."""
    names = ("ordered", "ordered-easy", "ordered-kept", "ordered-headroom", "ordered-blocking", "saf")
    yield from every_profile("victims", range(16), names, busy)
    yield from every_profile("victims", range(16, 24), ("wfp3", "f1"), busy)


def rules() -> Iterator[Decided]:
    """Ports, volumes, affinity and spreading together with victims."""
    names = ("joint", "pod-by-pod", "ordered-easy")
    yield from every_profile("rules", range(200, 218), names, lambda seed: busy(seed, rules=True))


def ties() -> Iterator[Decided]:
    """Equal nodes and gangs that are much alike."""
    names = ("joint", "pod-by-pod", "ordered-easy", "aggregated")
    yield from every_profile("ties", range(300, 312), names, lambda seed: busy(seed, equal=True))


def fragmented() -> Iterator[Decided]:
    """Free room in pieces, so that gangs move for a gang that needs it in one place."""
    names = ("consolidate", "joint", "pod-by-pod")
    yield from every_profile(
        "fragmented",
        range(320, 334),
        names,
        lambda seed: drawn(seed, nodes=5, filled=0.55, pending=2, equal=True, fragmented=True),
    )


def queue_policies() -> Iterator[Decided]:
    """Queues in two levels under each policy, with what they used lately."""
    for seed, policy in enumerate(QUEUE_POLICIES * 3, 400):
        name = ("joint", "ordered-easy", "pod-by-pod")[seed // len(QUEUE_POLICIES) % 3]
        settings = PROFILES[name] | {"queuePolicy": {"name": policy}, "usageHalfLifeSeconds": 3600}
        snapshot = busy(seed, limits=0.2)
        dice = random.Random(seed)
        usage = tuple(
            PastQueueUsage(queue.name, resource, float(dice.randint(0, 8000)))
            for queue in snapshot.queues
            if queue.spec.parent
            for resource in ("cpu", "nvidia.com/gpu")
        )
        case = Case(f"queue-policies/{seed}/{name}-{policy}", replace(snapshot, usage=usage), settings)
        yield _decided(case)


def held_gangs() -> Iterator[Decided]:
    """Gangs that an earlier session left waiting at Permit, some whole, some in part, some past the deadline."""
    for seed in range(500, 524):
        snapshot = drawn(seed, nodes=6, filled=0.4, pending=4)
        dice = random.Random(seed)
        held = []
        for group in snapshot.pod_groups:
            pods = [
                pod
                for pod in snapshot.pods
                if not pod.node_name
                and pod.namespace == group.namespace
                and pod.labels.get("scheduling.batchsched.dev/pod-group") == group.name
            ]
            if pods and dice.random() < 0.7:
                count = len(pods) if dice.random() < 0.6 else dice.randint(1, len(pods))
                places = tuple(HeldGangPod(pod.key, dice.choice(snapshot.nodes).name) for pod in pods[:count])
                until = NOW + dice.choice([-5.0, 5.0, 500.0])
                held.append(HeldGang(group.key, "GangScheduling", until, places))
        resting = tuple(
            group.key
            for group in snapshot.pod_groups
            if dice.random() < 0.1 and group.key not in {gang.pod_group for gang in held}
        )
        name = ("joint", "pod-by-pod", "ordered-easy")[seed % 3]
        with_held = replace(snapshot, held=tuple(held), resting=resting)
        yield _decided(Case(f"held/{seed}/{name}", with_held, PROFILES[name]))


def permit() -> Iterator[Decided]:
    """A Permit plugin that lets gangs wait, or refuses a member."""
    for seed in range(540, 552):
        snapshot = clusters.random_cluster(seed, clusters.NO_RULES)
        pods = sorted(pod.name for pod in snapshot.pods if not pod.node_name)
        answers = {"wait": wait, "refuse": refuse(pods[seed % len(pods)] if pods else "")}
        for name in ("joint", "pod-by-pod"):
            answer = ("wait", "refuse")[seed % 2]
            decision, _ = decide_with(Recorder(answers[answer]), snapshot, NOW, **PROFILES[name])
            yield Case(f"permit/{seed}/{answer}-{name}", snapshot, PROFILES[name]), decision


def bench_instances() -> Iterator[Decided]:
    """The instances of the benches, small."""
    for noisy in (False, True):
        snapshot = snapshot_of(items(generate(48, 12, 1, noisy=noisy)))
        for name in ("joint", "aggregated", "ordered-easy", "pod-by-pod", "weight-kept"):
            kind = "noisy" if noisy else "lean"
            yield _decided(Case(f"bench/solver-{kind}/{name}", snapshot, PROFILES[name]))
    for name in ("joint", "ordered-easy", "pod-by-pod"):
        yield _decided(Case(f"bench/queues/{name}", queues_snapshot(40, 30, 12, 1), PROFILES[name]))
    for workload in WORKLOADS:
        for name in ("pod-by-pod", "joint"):
            snapshot = pipeline_snapshot(workload, 12, 10, 1)
            yield _decided(Case(f"bench/pipeline-{workload.name}/{name}", snapshot, PROFILES[name]))
    for seed in range(2):
        snapshot = drawn(600 + seed, nodes=24, filled=0.97, pending=6, equal=True)
        for name in ("joint", "pod-by-pod", "consolidate"):
            yield _decided(Case(f"bench/victims-{seed}/{name}", snapshot, PROFILES[name]))


# ------------------------------------------------------------------------------------------- sequences


def sequences() -> Iterator[Decided]:
    """Four sessions in a row: decisions are carried out, victims leave and queue again, gangs finish."""
    for seed in range(700, 712):
        name = ("joint", "consolidate", "pod-by-pod", "aggregated")[seed % 4]
        yield from sequence(f"sequence/{seed}/{name}", seed, PROFILES[name])


def sequences_with_reservations() -> Iterator[Decided]:
    """The same, with reservations that are handed from one session to the next."""
    for seed in range(720, 732):
        name = ("ordered-easy", "ordered-kept", "weight-easy", "weight-kept")[seed % 4]
        yield from sequence(f"sequence/{seed}/{name}", seed, PROFILES[name])


def sequence(name: str, seed: int, settings: Settings) -> Iterator[Decided]:
    """Carry out each decision on the cluster, let some time pass, and decide again."""
    dice = random.Random(seed)
    snapshot, now = busy(seed), NOW
    waiting: tuple[Any, ...] = ()
    for session in range(4):
        case = Case(f"{name}/{session}", snapshot, settings, now, seed)
        decision = case.decide()
        yield case, decision
        leaving = started_now(asked_to_leave(snapshot, decision))
        if session % 2 == 0:
            # Victims are still terminating in the next session; their replacements come after it.
            waiting = queued_again(snapshot, Snapshot(), decision).pods
            snapshot = leaving
        else:
            left = gone(leaving)
            finished = {group.key for group in left.pod_groups if dice.random() < 0.15}
            pods = tuple(
                pod
                for pod in left.pods
                if f"{pod.namespace}/{pod.labels.get('scheduling.batchsched.dev/pod-group')}" not in finished
            )
            names = {pod.key for pod in pods}
            replacements = tuple(pod for pod in waiting if pod.key not in names)
            snapshot = replace(left, pods=pods + replacements)
        snapshot = replace(snapshot, reservations=decision.reservations)
        now += EVERY_SESSION
