"""Kill leaders again and again, let a bad network rage, then keep one leader busy, and report the results.

``bench/results/`` has its results, docs/resilience.md a summary. Its exit code is 1 when an
invariant did not hold: a gang left partially bound, a pod bound twice or lost, an overcommitted node, or memory that
only grows.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tests.controlplane.fixtures import Namespace, start
from tests.controlplane.plane import ControlPlane
from tests.controlplane.process import Terms
from tests.faults.kills import CPUS, Rounds, table
from tests.faults.replicas import pair, running
from tests.faults.witness import Witness
from tests.soak.attacker import Attacker
from tests.soak.churn import Churn, Sample, Size
from tests.soak.storm import Gust, Storm


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments ask for."""
    options = _options(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-") as home, start(Path(home) / "plane") as plane:
        plane.start_kwok()
        plane.install_definitions()
        try:
            if options.kills:
                _kill(plane, options)
            if options.storm:
                _storm(plane, options)
            if options.seconds:
                _churn(plane, options)
        except AssertionError as error:
            print(f"FAILED: {error}", flush=True)
            for log in sorted(plane.home.glob("soak-*.log")):
                print(f"--- {log.name}\n{log.read_text(errors='replace')[-10_000:]}")
            return 1
    print(f"all invariants held; {time.monotonic() - began:.0f} s in all, Python {platform.python_version()}")
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="leaders to kill (200)")
    parser.add_argument("--batch", type=int, default=150, help="pods of a round of kills (150)")
    parser.add_argument("--storm", type=float, default=600, help="seconds of bad network (600)")
    parser.add_argument("--seconds", type=float, default=3600, help="of churn under one leader (3600)")
    parser.add_argument("--nodes", type=int, default=5000, help="in the churn (5000)")
    parser.add_argument(
        "--pods", type=int, default=50_000, help="that are bound at any time in the churn (50000)"
    )
    parser.add_argument("--pause", type=float, default=0, help="seconds between two batches of the churn (0)")
    parser.add_argument(
        "--until", type=float, default=float("inf"), help="no round of kills begins later (s)"
    )
    parser.add_argument(
        "--attack-rate",
        type=float,
        default=0,
        help="objects per second of another tenant's attacks beside kills and churn (0: no attacks)",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--record", type=Path, help="a file that gets one line of JSON for each round and sample"
    )
    return parser.parse_args(arguments)


def _kill(plane: ControlPlane, options: argparse.Namespace) -> None:
    began = time.monotonic()
    namespace = _namespace(plane, "kills")
    terms = Terms()
    with (
        _attacking(plane, options, "kills", CPUS),
        Witness(plane.admin, CPUS).watching() as witness,
        running(*pair(plane, "soak-killed", terms)) as replicas,
    ):
        rounds = Rounds(replicas, namespace, witness, options.seed, options.batch)
        try:
            while (
                sum(one.kills for one in rounds.done) < options.kills
                and time.monotonic() - began < options.until
            ):
                one = rounds.run()
                print(f"{time.strftime('%H:%M:%S')} {one}", flush=True)
                _record(options.record, {"kind": "kill", **asdict(one)})
        finally:
            print(f"kills, with a Lease of {terms.duration} s, {options.batch} pods in each round:")
            print("\n".join(table(rounds.done)), flush=True)
            print(f"{len(witness.binds)} binds seen, {time.monotonic() - began:.0f} s", flush=True)
    _clear(namespace)


def _storm(plane: ControlPlane, options: argparse.Namespace) -> None:
    namespace = _namespace(plane, "storm")
    storm = Storm(plane, namespace, options.seed)
    _follow("gust", storm.run(options.storm), storm.summary, options.record)
    _clear(namespace)


def _clear(namespace: Namespace) -> None:
    for path in (namespace.path("pods"), "/api/v1/nodes"):
        namespace.api.delete(path)


def _churn(plane: ControlPlane, options: argparse.Namespace) -> None:
    namespace = _namespace(plane, "churn")
    churn = Churn(plane, namespace, Size(options.nodes, options.pods), options.seed, options.pause)
    with _attacking(plane, options, "churn", churn.node_cpus):
        _follow("sample", churn.run(options.seconds), churn.summary, options.record)


@contextmanager
def _attacking(plane: ControlPlane, options: argparse.Namespace, phase: str, cpu: int) -> Iterator[None]:
    """Run the attacks of another tenant beside, if the arguments ask for them, and print their number at the end."""
    if not options.attack_rate:
        yield
        return
    attacker = Attacker(plane, _namespace(plane, f"attacker-of-{phase}"), options.attack_rate)
    try:
        with attacker.attacking(cpu):
            yield
    finally:
        accepted = ", ".join(f"{name} {count}" for name, count in sorted(attacker.accepted.items()))
        print(f"{attacker.rounds} attacks; accepted objects: {accepted or 'none'}", flush=True)


def _follow(
    kind: str, run: Iterable[Gust | Sample], summary: Callable[[], Iterable[str]], record: Path | None
) -> None:
    """Print the results of a run as they arrive, and a summary at the end, however it ends."""
    try:
        for one in run:
            print(f"{time.strftime('%H:%M:%S')} {one}", flush=True)
            _record(record, {"kind": kind, **asdict(one)})
    finally:
        print("\n".join(summary()), flush=True)


def _namespace(plane: ControlPlane, name: str) -> Namespace:
    plane.admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
    return Namespace(plane.admin, name)


def _record(path: Path | None, what: dict[str, object]) -> None:
    if path is not None:
        with path.open("a") as lines:
            lines.write(json.dumps(what) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
