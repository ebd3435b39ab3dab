"""The bench: decide each case with the joint solver and pod by pod, check the placements, and print one table."""

import argparse
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import track

from batchsched.api.decision import Decision
from batchsched.config.schema import Profile
from batchsched.session.session import decide
from bench.groups import objects
from bench.groups.cases import KINDS, Case, CaseGenerator
from bench.groups.check import find_fault
from bench.groups.kube_scheduler import KubeScheduler
from tests.controlplane.build import VERSION

NOW = 1767225600.0
PROVED = "proved: no placement"
KUBE_SCHEDULER = f"kube-scheduler {VERSION.removeprefix('v')}"


@dataclass(slots=True)
class Tally:
    """The figures of one row of the table.

    Attributes:
      expressible: the gangs that kube-scheduler was given; it has no groups with slices.
    """

    cases: int = 0
    expressible: int = 0
    placed: Counter[str] = field(default_factory=Counter)
    proved: int = 0
    refused: int = 0
    seconds: list[float] = field(default_factory=list)


def main(arguments: list[str]) -> int:
    """Run the bench and return 1 if a feasible gang is refused, or a placement is wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench groups", description=__doc__)
    parser.add_argument(
        "--count", type=int, default=1000, help="feasible gangs, and candidates of infeasible ones"
    )
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--in-order", action="store_true", help="also decide with selection: ordered")
    parser.add_argument("--only", choices=("feasible", "candidates"), help="only one of the two tables")
    parser.add_argument(
        "--kube-scheduler",
        action="store_true",
        help="also let the real kube-scheduler place the gangs that fit; `make controlplane` builds it",
    )
    options = parser.parse_args(arguments)
    if options.count < 1:
        parser.error(f"argument --count: {options.count} is no number of gangs; expected at least 1")
    if options.kube_scheduler and options.only == "candidates":
        parser.error("--kube-scheduler places the gangs that fit: leave out --only candidates")
    faults: list[str] = []
    seeds = range(options.seed, options.seed + options.count)
    names = ["batchsched", *(["in order"] if options.in_order else []), "pod by pod"]
    feasible = {kind: Tally() for kind in KINDS}
    if options.only != "candidates":
        for seed in seeds:
            case = CaseGenerator(seed).draw()
            _run_feasible(case, feasible[case.kind], seed, names, faults)
        if options.kube_scheduler:
            _run_kube_scheduler(seeds, feasible)
            names.append(KUBE_SCHEDULER)
        _print_feasible(feasible, names)
    if options.only != "feasible":
        candidates = {kind: Tally() for kind in KINDS}
        for seed in seeds:
            case = CaseGenerator(seed, feasible=False).draw()
            _run_candidate(case, candidates[case.kind], seed, faults)
        _print_candidates(candidates)
    for fault in faults:
        print(fault)
    return int(bool(faults))


PROFILES = {
    "batchsched": Profile(),
    "in order": Profile(selection="ordered"),
    "pod by pod": Profile.model_validate({"solver": {"enabled": False}}),
}


def _decide(case: Case, profile: Profile) -> tuple[Decision, float, str]:
    """Return the decision, its CPU time, and what is wrong with its placement."""
    snapshot = objects.snapshot(case)
    start = time.process_time()
    decision = decide(snapshot, profile, NOW, 0)
    seconds = time.process_time() - start
    fault = find_fault(case, objects.placement(decision)) if decision.assignments else "refused"
    return decision, seconds, fault


def _run_feasible(case: Case, tally: Tally, seed: int, names: list[str], faults: list[str]) -> None:
    tally.cases += 1
    for name in names:
        decision, seconds, fault = _decide(case, PROFILES[name])
        tally.placed[name] += not fault
        if name == "batchsched":
            tally.seconds.append(seconds)
        if fault and (fault != "refused" or name != "pod by pod"):
            text = decision.refusals[0].message if decision.refusals else ""
            faults.append(f"seed {seed} ({case.kind}, load {case.load:.2f}), {name}: {fault}: {text}")


def _run_kube_scheduler(seeds: range, tallies: dict[str, Tally]) -> None:
    """Let kube-scheduler place the gangs without slices. A wrong placement does not count as placed."""
    cases = [case for seed in seeds if not objects.has_slices(case := CaseGenerator(seed).draw())]
    # Cases on equal nodes follow each other, so that these need not be created again.
    cases.sort(key=lambda case: (case.has_claims, len(case.free)))
    with KubeScheduler() as scheduler:
        for case in track(cases, "kube-scheduler", console=Console(stderr=True)):
            placement, _ = scheduler.place(case)
            tallies[case.kind].expressible += 1
            tallies[case.kind].placed[KUBE_SCHEDULER] += not find_fault(case, placement)


def _run_candidate(case: Case, tally: Tally, seed: int, faults: list[str]) -> None:
    decision, seconds, fault = _decide(case, PROFILES["batchsched"])
    tally.cases += 1
    tally.seconds.append(seconds)
    if not fault:
        tally.placed["batchsched"] += 1
    elif fault == "refused":
        tally.refused += 1
        # That no node passes the filters of a pod is a proof as well.
        tally.proved += any(
            PROVED in refusal.message or refusal.reason == "NoFeasibleNode" for refusal in decision.refusals
        )
    else:
        faults.append(f"seed {seed} ({case.kind}), candidate: {fault}")


def _milliseconds(seconds: list[float]) -> str:
    ordered = sorted(seconds) or [0.0]
    return f"{statistics.median(ordered) * 1000:.0f} / {ordered[int(len(ordered) * 0.95)] * 1000:.0f}"


def _print_feasible(tallies: dict[str, Tally], names: list[str]) -> None:
    print(f"| gangs that fit | cases | {' | '.join(names)} | CPU ms, median / p95 |")
    print("|---" * (len(names) + 3) + "|")
    for kind, tally in [*tallies.items(), ("all", _sum(tallies))]:
        each = " | ".join(_placed(tally, name) for name in names)
        print(f"| {kind} | {tally.cases} | {each} | {_milliseconds(tally.seconds)} |")


def _placed(tally: Tally, name: str) -> str:
    """Return how many gangs were placed, and of how many if the scheduler has no groups with slices."""
    if name != KUBE_SCHEDULER or tally.expressible == tally.cases:
        return str(tally.placed[name])
    return f"{tally.placed[name]} of {tally.expressible}" if tally.expressible else "-"


def _print_candidates(tallies: dict[str, Tally]) -> None:
    print("\n| gangs that may not fit | cases | placed | refused | of these proved | CPU ms, median / p95 |")
    print("|---|---|---|---|---|---|")
    for kind, tally in [*tallies.items(), ("all", _sum(tallies))]:
        placed = tally.placed["batchsched"]
        print(
            f"| {kind} | {tally.cases} | {placed} | {tally.refused} | {tally.proved} "
            f"| {_milliseconds(tally.seconds)} |"
        )


def _sum(tallies: dict[str, Tally]) -> Tally:
    total = Tally()
    for tally in tallies.values():
        total.cases += tally.cases
        total.placed += tally.placed
        total.proved += tally.proved
        total.refused += tally.refused
        total.expressible += tally.expressible
        total.seconds += tally.seconds
    return total
