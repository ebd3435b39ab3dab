"""Small random gangs with rules between members, and a search that tries every way to place their pods one by one.

The search knows the rules of pods only from what is drawn here: it shares no code with the plugins or the solver.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import msgspec
from hypothesis import strategies as st

from batchsched.api.core.node import Node
from batchsched.api.core.pod import POD_GROUP_LABEL, Pod
from batchsched.api.core.volume import PersistentVolume, PersistentVolumeClaim
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.snapshot import Snapshot
from tests.session.scenario import group

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


@dataclass(frozen=True)
class Machine:
    """A node: its zone, "" for none, and how many pods it has room for."""

    name: str
    zone: str
    room: int
    disk: bool = False

    def domain(self, key: str) -> str:
        return self.name if key == HOST else self.zone


@dataclass(frozen=True)
class Spread:
    """A DoNotSchedule constraint over the pods of one app."""

    key: str
    app: str
    skew: int
    least: int = 1
    by_revision: bool = False


@dataclass(frozen=True)
class Rules:
    """Required rules of a pod.

    Args:
      near, apart: (key, app) pairs of required terms.
      disk: it may only go to nodes with a disk.
      shut: numbers of nodes where it may not go at all.
    """

    near: tuple[tuple[str, str], ...] = ()
    apart: tuple[tuple[str, str], ...] = ()
    spreads: tuple[Spread, ...] = ()
    port: int = 0
    claim: str = ""
    disk: bool = False
    shut: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Kind:
    """Equal pods: an app and a revision, what they want, and how many there are."""

    app: str
    revision: str
    rules: Rules
    count: int
    cpu: int = 1


@dataclass(frozen=True)
class Team:
    """A gang."""

    name: str
    kinds: tuple[Kind, ...]
    need: int


@dataclass(frozen=True)
class Puzzle:
    """Nodes, pods that are there, and gangs that wait."""

    machines: tuple[Machine, ...]
    there: tuple[tuple[Kind, int], ...]
    teams: tuple[Team, ...]

    def only(self, *names: str) -> "Puzzle":
        return replace(self, teams=tuple(team for team in self.teams if team.name in names))

    def careless(self) -> "Puzzle":
        """The same without what the gangs' own pods want of each other: only what is there keeps them off nodes."""

        def freed(kind: Kind) -> Kind:
            lonely = replace(kind, rules=replace(kind.rules, near=(), spreads=(), claim=""), cpu=0)
            open_to = {at for at in range(len(self.machines)) if welcome(self, self.there, lonely, at)}
            shut = frozenset(range(len(self.machines))) - open_to
            return replace(kind, rules=Rules(shut=shut))

        return replace(
            self, teams=tuple(replace(team, kinds=tuple(map(freed, team.kinds))) for team in self.teams)
        )


Placed = tuple[tuple[Kind, int], ...]


def can_be_placed(puzzle: Puzzle) -> bool:
    """Tell whether all gangs can be placed, in some order of them, each pod where it is welcome when it comes."""
    return any(_all_placed(puzzle, puzzle.there, order) for order in permutations(puzzle.teams))


def _all_placed(puzzle: Puzzle, there: Placed, teams: tuple[Team, ...]) -> bool:
    if not teams:
        return True
    return any(_all_placed(puzzle, after, teams[1:]) for after in _ways(puzzle, there, teams[0]))


def _ways(puzzle: Puzzle, there: Placed, team: Team) -> Iterator[Placed]:
    """Every way to place as many pods of a gang as it needs, each in turn on a node that accepts it then."""
    seen: set[frozenset[tuple[tuple[int, int], int]]] = set()
    start: dict[tuple[int, int], int] = {}
    pending = [start]
    while pending:
        counts = pending.pop()
        after = there + tuple(
            (team.kinds[kind], at) for (kind, at), count in counts.items() for _ in range(count)
        )
        if sum(counts.values()) == team.need:
            yield after
            continue
        for number, kind in enumerate(team.kinds):
            if sum(count for (other, _), count in counts.items() if other == number) == kind.count:
                continue
            for at in range(len(puzzle.machines)):
                if not welcome(puzzle, after, kind, at):
                    continue
                following = counts | {(number, at): counts.get((number, at), 0) + 1}
                key = frozenset(following.items())
                if key not in seen:
                    seen.add(key)
                    pending.append(following)


def welcome(puzzle: Puzzle, there: Placed, kind: Kind, at: int) -> bool:
    """Tell whether one more pod may come to a node."""
    machine, rules = puzzle.machines[at], kind.rules
    here = [other for other, place in there if place == at]
    if (rules.disk and not machine.disk) or at in rules.shut:
        return False
    if sum(other.cpu for other in here) + kind.cpu > machine.room:
        return False
    if rules.port and any(other.rules.port == rules.port for other in here):
        return False
    if rules.claim and any(other.rules.claim == rules.claim for other, _ in there):
        return False
    return (
        _has_friends(puzzle, there, kind, machine)
        and _has_no_foes(puzzle, there, kind, machine)
        and all(_evenly(puzzle, there, kind, machine, one) for one in rules.spreads)
    )


def _has_friends(puzzle: Puzzle, there: Placed, kind: Kind, machine: Machine) -> bool:
    near = kind.rules.near
    if any(not machine.domain(key) for key, _ in near):
        return False

    def friendly(other: Kind) -> bool:
        return all(other.app == app for _, app in near)

    def beside(key: str) -> bool:
        return any(
            friendly(other) and puzzle.machines[place].domain(key) == machine.domain(key)
            for other, place in there
        )

    if all(beside(key) for key, _ in near):
        return True
    anyone = any(
        friendly(other) and any(puzzle.machines[place].domain(key) for key, _ in near)
        for other, place in there
    )
    return not anyone and friendly(kind)


def _has_no_foes(puzzle: Puzzle, there: Placed, kind: Kind, machine: Machine) -> bool:
    for other, place in there:
        theirs = puzzle.machines[place]
        mine = [key for key, app in kind.rules.apart if other.app == app]
        its = [key for key, app in other.rules.apart if kind.app == app]
        if any(machine.domain(key) and machine.domain(key) == theirs.domain(key) for key in mine + its):
            return False
    return True


def _evenly(puzzle: Puzzle, there: Placed, kind: Kind, machine: Machine, one: Spread) -> bool:
    if any(not machine.domain(each.key) for each in kind.rules.spreads):
        return False
    counts: dict[str, int] = {}
    for at, other in enumerate(puzzle.machines):
        if kind.rules.disk and not other.disk:
            continue
        if all(other.domain(each.key) for each in kind.rules.spreads):
            counted = [
                other_kind for other_kind, place in there if place == at and _counted(one, other_kind, kind)
            ]
            counts[other.domain(one.key)] = counts.get(other.domain(one.key), 0) + len(counted)
    lowest = min(counts.values(), default=0) if len(counts) >= one.least else 0
    after = counts.get(machine.domain(one.key), 0) + _counted(one, kind, kind)
    return after - lowest <= one.skew


def _counted(one: Spread, placed: Kind, asking: Kind) -> bool:
    return placed.app == one.app and (not one.by_revision or placed.revision == asking.revision)


def snapshot_of(puzzle: Puzzle) -> Snapshot:
    """The puzzle as Kubernetes objects."""
    members = [
        _pod(f"{team.name}-{number}-{at}", kind, team=team.name)
        for team in puzzle.teams
        for number, kind in enumerate(team.kinds)
        for at in range(kind.count)
    ]
    there = [
        _pod(f"there-{number}", kind, on=puzzle.machines[at].name)
        for number, (kind, at) in enumerate(puzzle.there)
    ]
    return Snapshot(
        nodes=tuple(map(_node, puzzle.machines)),
        pods=(*members, *there),
        pod_groups=tuple(_group(team) for team in puzzle.teams),
        persistent_volume_claims=tuple(map(_claim, ("c0", "c1"))),
        persistent_volumes=tuple(map(_volume, ("c0", "c1"))),
    )


def _group(team: Team) -> PodGroup:
    return group(team.name, team.need)


def _node(machine: Machine) -> Node:
    labels = {HOST: machine.name} | ({ZONE: machine.zone} if machine.zone else {})
    labels |= {"disk": "ssd"} if machine.disk else {}
    return msgspec.convert(
        {
            "metadata": {"name": machine.name, "labels": labels},
            "status": {"allocatable": {"cpu": str(machine.room), "memory": "64Gi", "pods": "110"}},
        },
        Node,
    )


def _claim(name: str) -> PersistentVolumeClaim:
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "team",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {"accessModes": ["ReadWriteOncePod"], "volumeName": name},
        },
        PersistentVolumeClaim,
    )


def _volume(name: str) -> PersistentVolume:
    return msgspec.convert(
        {"metadata": {"name": name}, "spec": {"capacity": {"storage": "1Gi"}}}, PersistentVolume
    )


def _pod(name: str, kind: Kind, *, team: str = "", on: str = "") -> Pod:
    rules = kind.rules
    container: dict[str, Any] = {"name": "c", "resources": {"requests": {"cpu": str(kind.cpu)}}}
    if rules.port:
        container["ports"] = [{"containerPort": 80, "hostPort": rules.port}]
    spec: dict[str, Any] = {"containers": [container], "schedulerName": "batchsched", "nodeName": on}
    spec["affinity"] = {
        "podAffinity": _required(rules.near),
        "podAntiAffinity": _required(rules.apart),
    }
    spec["topologySpreadConstraints"] = [
        {
            "topologyKey": one.key,
            "maxSkew": one.skew,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": _selector(one.app),
            **({"minDomains": one.least} if one.least > 1 else {}),
            **({"matchLabelKeys": ["rev"]} if one.by_revision else {}),
        }
        for one in rules.spreads
    ]
    if rules.claim:
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": rules.claim}}]
    if rules.disk:
        spec["nodeSelector"] = {"disk": "ssd"}
    labels = {"app": kind.app, "rev": kind.revision} | ({POD_GROUP_LABEL: team} if team else {})
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "team", "labels": labels}, "spec": spec}, Pod
    )


def _required(terms: Iterable[tuple[str, str]]) -> dict[str, Any]:
    stated = [{"topologyKey": key, "labelSelector": _selector(app)} for key, app in terms]
    return {"requiredDuringSchedulingIgnoredDuringExecution": stated}


def _selector(app: str) -> dict[str, Any]:
    return {"matchLabels": {"app": app}}


@st.composite
def rules(draw: st.DrawFn, apps: tuple[str, ...]) -> Rules:
    """One or two of the rules that this is about, over apps of the gang."""
    keys, app = st.sampled_from([ZONE, HOST]), st.sampled_from(apps)
    pair = st.tuples(keys, app)
    some: dict[str, Any] = {
        "near": st.lists(pair, min_size=1, max_size=2, unique_by=lambda one: one[0]).map(tuple),
        "apart": st.lists(pair, min_size=1, max_size=1).map(tuple),
        "spreads": st.lists(
            st.builds(Spread, keys, app, st.integers(1, 2), st.integers(1, 3), st.booleans()),
            min_size=1,
            max_size=2,
            unique_by=lambda one: one.key,
        ).map(tuple),
        "port": st.sampled_from([80, 81]),
        "claim": st.sampled_from(["c0", "c1"]),
        "disk": st.just(True),
    }
    names = draw(st.lists(st.sampled_from(["near", "apart", "spreads", *some]), max_size=2, unique=True))
    return Rules(**{name: draw(some[name]) for name in names})


@st.composite
def puzzles(draw: st.DrawFn, teams: int = 1) -> Puzzle:
    """One gang with rules, and others that only request capacity; if there are several gangs, none has surplus."""
    machines = tuple(
        Machine(
            f"n{at}",
            draw(st.sampled_from(["x", "y", "z", "x", "y", "z", ""])),
            draw(st.integers(1, 4)),
            draw(st.booleans()),
        )
        for at in range(draw(st.integers(2, 5)))
    )
    number = draw(st.integers(1, teams))
    found = []
    for at in range(number):
        apps = tuple(draw(st.permutations("abc")))[:2]
        kinds = tuple(
            Kind(
                apps[part] if at == 0 else "d",
                draw(st.sampled_from("12")),
                draw(rules(apps)) if at == 0 else Rules(),
                draw(st.integers(1, 3 if number == 1 else 2)),
                draw(st.sampled_from([1, 1, 2])),
            )
            for part in range(draw(st.integers(1, 2)))
        )
        size = sum(kind.count for kind in kinds)
        found.append(
            Team(
                f"g{at}",
                kinds,
                draw(st.sampled_from([size, size, max(1, size - 1)])) if number == 1 else size,
            )
        )
    there = [
        (
            Kind(draw(st.sampled_from("abc")), "1", draw(rules(("a", "b", "c"))), 1),
            draw(st.integers(0, len(machines) - 1)),
        )
        for _ in range(draw(st.integers(0, 2)))
    ]
    return Puzzle(machines, tuple(there), tuple(found))
