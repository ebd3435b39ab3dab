"""`make oracle`: random cases, evaluated by the plugins of kube-scheduler and of batchsched, and compared.

Its plugins run in a small Go program next to the modules of the control plane (tests/controlplane/kubernetes/oracle),
built from each release that the cases were recorded from. What it answers is in the format of the recorded cases.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TextIO

import msgspec

from batchsched.config.kubernetes_release import DEFAULT_VERSION, RELEASES, KubernetesVersion
from batchsched.devices.allocator import SEARCH_ENDED
from batchsched.errors import PluginError
from tests.conformance import __main__ as command
from tests.conformance import arrivals, cycle, runner
from tests.conformance.draw import AREAS, case
from tests.conformance.draw.cluster import Json
from tests.controlplane import build

_AT_ONCE: Final = 200


def answers(cases: Sequence[Json], version: KubernetesVersion) -> list[Json]:
    """Run the plugins of a release of kube-scheduler; the answers are in the order of the cases.

    Raises:
      NoGo: there is no Go to build the program with.
      CalledProcessError: the program does not build, or refuses a case.
    """
    text = json.dumps(cases).encode()
    oracle = str(build.program("oracle", version))
    done = subprocess.run([oracle], input=text, stdout=subprocess.PIPE, check=True)
    found: list[Json] = json.loads(done.stdout)
    return found


def recorded(seeds: range, areas: tuple[str, ...], version: KubernetesVersion) -> Iterator[Json]:
    """Draw cases, and yield them with what is expected of them."""
    for start in range(seeds.start, seeds.stop, _AT_ONCE):
        drawn = [case(seed, areas) for seed in range(start, min(start + _AT_ONCE, seeds.stop))]
        for one, expected in zip(drawn, answers(drawn, version), strict=True):
            yield {**one, "kubernetesVersion": version, "expected": expected}


def differences(stated: Json) -> list[str]:
    """Return the differences of a case. Both schedulers must return an error, or neither; messages are not compared.

    A case in which a plugin of kube-scheduler panics has no answer to compare with.
    """
    if stated["expected"].get("error", "").startswith("panic: "):
        return []
    asked = msgspec.convert(stated, runner.Case)
    try:
        found = list(command.differences(asked))
    except PluginError as error:
        return [] if stated["expected"].get("error") else [f"{stated['name']} {error}"]
    if cycle.decides_alone(asked):
        found += cycle.decision_mismatches(asked)
    return found


def main(arguments: Sequence[str], out: TextIO = sys.stdout) -> int:
    """Compare random cases; return 1 when anything differs."""
    parser = argparse.ArgumentParser(prog="make oracle", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="how many cases")
    parser.add_argument("--seed", type=int, default=1, help="the first one's")
    parser.add_argument(
        "--kubernetes-version", choices=RELEASES, default=DEFAULT_VERSION, help="the release that answers"
    )
    parser.add_argument("--areas", default="", help=f"of these alone: {', '.join(AREAS)}")
    parser.add_argument(
        "--several", action="store_true", help="several pods each, one after the other through decide"
    )
    parser.add_argument("--keep", type=Path, help="a folder for the cases that differ")
    asked = parser.parse_args(arguments)
    areas = tuple(filter(None, asked.areas.split(",")))
    if unknown := sorted(set(areas) - set(AREAS)):
        parser.error(f"no such area: {', '.join(unknown)}; there are {', '.join(AREAS)}")
    if asked.keep is not None:
        asked.keep.mkdir(parents=True, exist_ok=True)
    outcomes: Counter[str] = Counter()
    wrong, ended = 0, 0
    seeds = range(asked.seed, asked.seed + asked.count)
    draw = arrived if asked.several else compared
    for stated, found in draw(seeds, areas, asked.kubernetes_version):
        outcomes[outcome(stated["expected"])] += 1
        if found:
            # kube-scheduler searches devices for 10 s; batchsched ends a search after a number of steps.
            is_ended = SEARCH_ENDED in found
            wrong, ended = wrong + (not is_ended), ended + is_ended
            print(f"[{stated['note']}] {found}", file=out, flush=True)
            if asked.keep is not None:
                name = f"{stated['name']}-{stated['pod']['metadata']['name']}.json"
                (asked.keep / name).write_text(json.dumps([stated]))
    counts = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
    release = f"kube-scheduler {asked.kubernetes_version}"
    limited = f", {ended} searches of devices ended before that of kube-scheduler" if ended else ""
    print(f"{release}: {outcomes.total()} cases: {counts}; {wrong} differ{limited}", file=out)
    return 1 if wrong else 0


def compared(seeds: range, areas: tuple[str, ...], version: KubernetesVersion) -> Iterator[tuple[Json, str]]:
    """Yield cases with their answers, and what differs first, "" for nothing."""
    for stated in recorded(seeds, areas, version):
        yield stated, next(iter(differences(stated)), "")


def arrived(seeds: range, areas: tuple[str, ...], version: KubernetesVersion) -> Iterator[tuple[Json, str]]:
    """The same, of pods that wait together: a case for each of them, as it comes."""
    for seed in seeds:
        waiting = list(arrivals.arrivals(seed, areas, version))
        expected = answers([one.drawn for one in waiting], version)
        for one, answer in zip(waiting, expected, strict=True):
            yield {**one.drawn, "expected": answer}, one.difference(answer)


def outcome(expected: Json) -> str:
    """Name the outcome of a case."""
    if expected.get("error"):
        return "in error"
    if expected["feasible"]:
        return "placed"
    return "nominated" if (expected.get("preemption") or {}).get("nominatedNode") else "refused"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
