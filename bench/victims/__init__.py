"""Victims on full clusters: the cost of the chosen set compared with three greedy methods, and the CPU seconds."""

import argparse
import json
import statistics
import time
from dataclasses import asdict, dataclass

from batchsched.solver.verify import find_victim_faults
from batchsched.solver.victims.choose import (
    GREEDIES,
    VictimSearchLimits,
    choose_victims,
    restore_unneeded_victims,
    search_inputs_by_domain,
)
from bench.victims.instances import Shape, draw

CASES = {
    "83 x 8, 1,000 nodes": Shape(1000, 0, 83),
    "512 GPUs, 1,000 nodes": Shape(1000, 0, 64),
    "200 x 8, 5,000 nodes": Shape(5000, 0, 200),
    "12 x 8 in a rack, 5,000 nodes": Shape(5000, 0, 12, racks=True),
    "83 x 8, 1,000 nodes, aligned": Shape(1000, 0, 83, aligned=True),
}
SMALL = 200


@dataclass(frozen=True, slots=True)
class Measured:
    """One instance: costs, and CPU seconds.

    `picked` is the best of the three greedies as they choose, `greedy` the best after unneeded victims are removed.
    """

    case: str
    seed: int
    units: int
    victims: int
    cost: int
    bound: int
    greedy: int
    picked: int
    cpu: float
    wall: float
    faults: tuple[str, ...]

    @property
    def gain(self) -> float:
        """How much the solver is cheaper than the best greedy method."""
        return 1 - self.cost / self.picked if self.picked else 0.0

    @property
    def trimmed(self) -> float:
        """How much the solver is cheaper than the best greedy method without unneeded victims."""
        return 1 - self.cost / self.greedy if self.greedy > 0 else 0.0


def measure(name: str, shape: Shape) -> Measured:
    """Choose the victims of one instance by the solver and by the greedy methods."""
    problem = draw(shape)
    cpu, wall = time.process_time(), time.perf_counter()
    answer = choose_victims(problem, VictimSearchLimits())
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    if answer is None:
        raise SystemExit(f"{name}, seed {shape.seed}: no set of victims makes room")
    picked, trimmed = [0], [0]
    if answer.units.size:
        grounds = [
            ground for terms in search_inputs_by_domain(problem) for one in GREEDIES if (ground := one(terms))
        ]
        picked = [ground.cost for ground in grounds]
        for ground in grounds:
            restore_unneeded_victims(ground)
        trimmed = [ground.cost for ground in grounds]
    return Measured(
        name,
        shape.seed,
        problem.unit_count,
        len(answer.units),
        answer.cost,
        answer.bound,
        min(trimmed),
        min(picked),
        cpu,
        wall,
        find_victim_faults(problem, answer),
    )


def show(results: list[Measured]) -> None:
    """Print a line for each instance, and the medians of each case."""
    print(f"{'case':32} {'seed':>4} {'units':>6} {'victims':>7} {'cost':>9} {'gap':>6}"
          f" {'cheaper':>8} {'trimmed':>8} {'cpu s':>6} {'wall s':>6}")  # fmt: skip
    for one in results:
        gap = 1 - one.bound / one.cost if one.cost else 0.0
        print(f"{one.case:32} {one.seed:>4} {one.units:>6} {one.victims:>7} {one.cost:>9} {gap:6.2%}"
              f" {one.gain:8.1%} {one.trimmed:8.1%} {one.cpu:6.2f} {one.wall:6.2f}")  # fmt: skip
        for fault in one.faults:
            print("  FAULT", fault)
    for name in dict.fromkeys(one.case for one in results):
        mine = [one for one in results if one.case == name]
        gain, trimmed = (
            statistics.median(getattr(one, what) for one in mine) for what in ("gain", "trimmed")
        )
        cpu = sorted(one.cpu for one in mine)
        print(f"{name}: {gain:.1%} cheaper than the best greedy as it picks, {trimmed:.1%} once trimmed;"
              f" CPU seconds {statistics.median(cpu):.2f}, at most {cpu[-1]:.2f}")  # fmt: skip


def small() -> list[Measured]:
    """Return 200 instances of all kinds with 20 to 200 nodes."""
    return [
        measure(
            "small",
            Shape(
                20 + seed % 10 * 20,
                seed,
                1 + seed % 13,
                gpus=(8, 4, 2)[seed % 3],
                racks=seed % 4 == 0,
                aligned=seed % 2 == 0,
            ),
        )
        for seed in range(SMALL)
    ]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    found = argparse.ArgumentParser("python -m bench victims", description=__doc__)
    found.add_argument("--seeds", type=int, default=5, help="the number of instances of each case")
    found.add_argument("--no-small", action="store_true", help="without the 200 small instances")
    found.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return found


def main(arguments: list[str]) -> int:
    """Run all cases; return 1 if a set of victims is invalid or costs more than that of a greedy method."""
    options = parser().parse_args(arguments)
    results = [
        measure(name, Shape(s.nodes, seed, s.pods, s.gpus, s.racks, s.aligned))
        for name, s in CASES.items()
        for seed in range(options.seeds)
    ]
    many = [] if options.no_small else small()
    worse = [one for one in results + many if one.faults or one.cost > one.greedy]
    if options.output == "json":
        print(json.dumps([asdict(one) for one in results + many]))
        return 1 if worse else 0
    show(results)
    if many:
        better = sum(one.cost < one.greedy for one in many)
        print(
            f"{len(many)} small instances: cheaper than the best trimmed greedy in {better}, dearer in {len(worse)}"
        )
    return 1 if worse else 0
