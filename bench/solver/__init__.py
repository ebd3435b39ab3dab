"""The session solver on random sessions: greedy and final objective, bound, gap, seconds by stage and memory."""

import argparse
import json
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from batchsched.runner.session_runner import shared_solver_processes
from batchsched.solver.greedy import solve_greedy, solve_like_other_batch_schedulers
from batchsched.solver.objective import compare_solutions
from batchsched.solver.problem import Problem, Solution, SolverBudget
from batchsched.solver.stage import solve_problem
from bench.solver.budgets import BudgetRow, lost_objectives, plot_budgets, show_budgets
from bench.solver.instances import Instance, fill_lean, fill_noisy, generate, partitioned, uncontended
from bench.solver.manifests import write
from bench.solver.optimum import LONG_RUN_UNITS, measure_small
from bench.solver.problems import to_problem
from bench.solver.processes import predict, show_predictions
from bench.solver.warm import WarmResult, change_instance, measure_start, show_starts

OTHER_SEED: Final = 1000
"""What is added to a seed for the instance from which new gangs are taken."""


@dataclass(slots=True)
class Stopwatch:
    """Telemetry that adds up wall seconds by stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage_span(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def gang_span(self, pod_group: str) -> AbstractContextManager[None]:
        return nullcontext()

    def on_progress(self, done: int, total: int, what: str) -> None:
        return

    def plugin_span(self, plugin: str, point: str) -> AbstractContextManager[None]:
        return nullcontext()


@dataclass(frozen=True, slots=True)
class Measured:
    """One solved instance. Objectives are by tier; `use` is the share of the free GPUs that is used."""

    nodes: int
    gangs: int
    seed: int
    pods: int
    greedy: list[float]
    final: list[float]
    bound: list[float]
    gap: float
    greedy_gap: float
    use: float
    seconds: float
    cpu: float
    stages: dict[str, float]
    rounds: int
    stage: str
    rss: int
    gain: float | None
    behind: bool


def draw(options: argparse.Namespace, seed: int) -> Instance:
    """Return the instance that the options describe."""
    if options.uncontended:
        pods = options.pods or 2 * options.nodes
        return uncontended(options.nodes, options.gangs, seed, pods, options.tiers)
    asked = (options.demand, options.demand)
    if options.partitioned:
        return partitioned(options.nodes, options.gangs, seed, asked, options.tiers)
    return generate(options.nodes, options.gangs, seed, asked, options.tiers, options.noisy)


def measure(options: argparse.Namespace, seed: int) -> Measured:
    """Solve one instance."""
    instance = draw(options, seed)
    problem = to_problem(instance)
    if options.export:
        target = Path(options.export)
        write(instance, target if len(options.seeds) == 1 else target.with_stem(f"{target.stem}-{seed}"))
    watch = Stopwatch()
    cpu, wall = time.process_time(), time.perf_counter()
    budget = SolverBudget(deterministic=options.budget, rounds=options.rounds)
    final = solve_problem(problem, budget, 0, watch, shared_solver_processes(options.workers))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    first = solve_greedy(problem)
    peers = solve_like_other_batch_schedulers(problem) if options.baseline else None
    return Measured(
        options.nodes,
        options.gangs,
        seed,
        instance.pods,
        first.objective.tolist(),
        final.objective.tolist(),
        final.bound.tolist(),
        final.gap,
        max(0.0, 1 - float(first.objective.sum()) / max(1e-12, float(final.bound.sum()))),
        _use(problem, final),
        wall,
        cpu,
        {name: round(value, 4) for name, value in watch.seconds.items()},
        final.rounds,
        final.stage,
        rss,
        float(final.objective.sum() / peers.objective.sum()) - 1 if peers is not None else None,
        peers is not None and compare_solutions(final, peers) < 0,
    )


def _use(problem: Problem, solution: Solution) -> float:
    gpu = float(problem.nodes.free[:, 2].sum())
    return float((problem.classes.demand[solution.classes, 2] * solution.counts).sum()) / gpu if gpu else 0.0


def show(results: list[Measured]) -> None:
    """Print a line for each instance, and the medians."""
    print(f"{'seed':>6} {'pods':>7} {'greedy':>8} {'final':>8} {'bound':>8} {'greedy gap':>10} {'gap':>7} {'GPU':>6}"
          f" {'gain':>7} {'wall s':>7} {'cpu s':>6} {'MB':>5}  stages")  # fmt: skip
    for one in results:
        print(_line(str(one.seed), one) + "  " + " ".join(f"{k} {v:.2f}" for k, v in one.stages.items())
              + f" ({one.stage}, {one.rounds} rounds)" + (" BEHIND THE BASELINE" if one.behind else ""))  # fmt: skip
    if len(results) > 1:
        print(_line("median", _median(results)))


def _line(name: str, one: Measured) -> str:
    gain = f"{one.gain:+7.1%}" if one.gain is not None else f"{'':>7}"
    return (
        f"{name:>6} {one.pods:>7} {sum(one.greedy):8.4f} {sum(one.final):8.4f} {sum(one.bound):8.4f}"
        f" {one.greedy_gap:10.2%} {one.gap:7.2%} {one.use:6.1%} {gain} {one.seconds:7.2f} {one.cpu:6.2f} {one.rss:>5}"
    )


def _median(results: list[Measured]) -> Measured:
    def of(name: str) -> float:
        return float(statistics.median(getattr(one, name) for one in results))

    def total(name: str) -> list[float]:
        return [float(statistics.median(sum(getattr(one, name)) for one in results))]

    gains = [one.gain for one in results if one.gain is not None]
    return Measured(
        results[0].nodes, results[0].gangs, -1, int(of("pods")), total("greedy"), total("final"), total("bound"),
        of("gap"), of("greedy_gap"), of("use"), of("seconds"), of("cpu"), {}, int(of("rounds")), "", int(of("rss")),
        statistics.median(gains) if gains else None, any(one.behind for one in results),
    )  # fmt: skip


_MODES: Final = ("optimum", "changed", "predict_workers", "budgets")
"""The options that replace the usual measurement."""


def _process_counts(text: str) -> list[int]:
    counts = [int(part) if part.isdecimal() else 0 for part in text.split(",")]
    if 0 in counts:
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers of processes, 1 or more, e.g. 1,2,4")
    return counts


def parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    found = argparse.ArgumentParser("python -m bench solver", description=__doc__)
    found.add_argument("--nodes", type=int, default=1000)
    found.add_argument("--gangs", type=int, default=100)
    found.add_argument(
        "--seeds", default="0,1,2,3,4", type=lambda text: [int(part) for part in text.split(",")]
    )
    found.add_argument("--demand", type=float, default=1.3, help="demand as a multiple of what is free")
    found.add_argument(
        "--tiers", type=int, default=4, choices=(1, 2, 4), help="priorities that are strict tiers"
    )
    found.add_argument(
        "--noisy", action="store_true", help="CPU and memory as full as the GPUs, each with noise of its own"
    )
    found.add_argument(
        "--partitioned",
        action="store_true",
        help="noisy nodes, scarce racks, many masks, templates and levels",
    )
    found.add_argument("--uncontended", action="store_true", help="the same mix with room for all gangs")
    found.add_argument(
        "--pods",
        type=int,
        default=0,
        help="with --uncontended: the approximate number of pods (2 for each node)",
    )
    found.add_argument(
        "--baseline", action="store_true", help="compare with job by job, priority then creation"
    )
    found.add_argument("--rounds", type=int, default=SolverBudget().rounds)
    found.add_argument(
        "--budget", type=float, default=SolverBudget().deterministic, help="deterministic units of the solver"
    )
    found.add_argument(
        "--budgets",
        default=[],
        type=lambda text: [float(part) for part in text.split(",") if part],
        help="measure each of these budgets, and print the gap over them",
    )
    found.add_argument(
        "--workers",
        type=int,
        default=1,
        help="processes of the search; CPU seconds are those of the session's own",
    )
    found.add_argument(
        "--predict-workers",
        default=[],
        type=_process_counts,
        metavar="N,...",
        help="predict the time with these numbers of processes from the time of each step in one",
    )
    found.add_argument("--plot", metavar="PATH", help="with --budgets: draw the gap over them as a page")
    found.add_argument(
        "--optimum",
        type=int,
        default=0,
        metavar="COUNT",
        help="compare as many small instances with the optimum that the exact model proves",
    )
    found.add_argument(
        "--long-run", type=float, default=LONG_RUN_UNITS, help="with --optimum: units of the exact model"
    )
    found.add_argument(
        "--changed",
        type=float,
        metavar="SHARE",
        help="change a share of the pods and gangs, and solve with and without a start from the answer before",
    )
    found.add_argument("--export", metavar="PATH", help="write the instance as manifests that decide reads")
    found.add_argument("-o", "--output", choices=("table", "json"), default="table")
    found.add_argument(
        "--here", action="store_true", help="solve in this process: no fresh peak RSS per instance"
    )
    return found


def main(arguments: list[str]) -> int:
    """Run each seed in its own process, so that its peak memory is measured."""
    options = parser().parse_args(arguments)
    _check_options(options)
    if options.optimum:
        first = options.seeds[0]
        return measure_small(range(first, first + options.optimum), options.long_run, options.output)
    if options.changed is not None:
        show_starts((_measure_changed(options, seed) for seed in options.seeds), options.output)
        return 0
    if options.predict_workers:
        budget = SolverBudget(deterministic=options.budget, rounds=options.rounds)
        problems = ((seed, to_problem(draw(options, seed))) for seed in options.seeds)
        show_predictions(
            [predict(problem, budget, seed, options.predict_workers) for seed, problem in problems]
        )
        return 0
    if options.budgets:
        return _over_budgets(arguments, options)
    results = [measure(options, seed) if options.here else _apart(arguments, seed) for seed in options.seeds]
    if options.output == "json":
        print(json.dumps([asdict(one) for one in results]))
    else:
        show(results)
    return 1 if any(one.behind for one in results) else 0


def _measure_changed(options: argparse.Namespace, seed: int) -> WarmResult:
    """Solve one instance, and again after the change with and without a start."""
    instance, other = draw(options, seed), draw(options, seed + OTHER_SEED)
    fill = fill_noisy if options.noisy or options.partitioned else fill_lean
    changed = change_instance(instance, other, fill, options.changed, seed)
    budget = SolverBudget(deterministic=options.budget, rounds=options.rounds)
    return measure_start(instance, changed, budget, seed)


def _check_options(options: argparse.Namespace) -> None:
    """Refuse combinations of options that the bench cannot use, before a long run."""
    if options.changed is not None and not 0 < options.changed <= 1:
        parser().error(f"--changed: expected a share above 0 and up to 1, found {options.changed:g}")
    if options.workers < 1:
        parser().error(f"--workers: expected 1 or more, found {options.workers}")
    modes = [name for name in _MODES if getattr(options, name) not in (None, 0, [])]
    if len(modes) > 1:
        first, second, *_ = (f"--{name.replace('_', '-')}" for name in modes)
        parser().error(f"{first} and {second} are different measurements; run one after the other")
    if options.predict_workers and options.output == "json":
        parser().error("--predict-workers prints a table only")
    if options.optimum < 0:
        parser().error("--optimum: expected a number of instances, 1 or more")
    if options.plot and not options.budgets:
        parser().error("--plot: needs --budgets, which it draws")
    if options.plot and not Path(options.plot).parent.is_dir():
        parser().error(
            f"--plot: there is no folder {Path(options.plot).parent}; make it, or name another one"
        )


def _over_budgets(arguments: list[str], options: argparse.Namespace) -> int:
    """Print the median and the largest gap, and the median CPU seconds, for each budget."""
    rows: list[BudgetRow] = []
    for budget in options.budgets:
        own = [*arguments, "--budgets", "", "--plot", "", "--budget", str(budget)]
        results = [
            measure(parser().parse_args([*own, "--seeds", str(seed)]), seed)
            if options.here
            else _apart(own, seed)
            for seed in options.seeds
        ]
        gaps, values = [result.gap for result in results], [result.final for result in results]
        rows.append(BudgetRow(budget, gaps, values, statistics.median(result.cpu for result in results)))
    if options.output == "json":
        print(json.dumps([asdict(row) for row in rows]))
    else:
        show_budgets(rows)
    if options.plot:
        plot_budgets(rows, f"python -m bench solver {shlex.join(arguments)}", Path(options.plot))
    return 1 if lost_objectives(rows) else 0


def _apart(arguments: list[str], seed: int) -> Measured:
    own = [sys.executable, "-m", "bench.solver", *arguments, "--seeds", str(seed), "--here", "-o", "json"]
    reply = subprocess.run(own, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    return Measured(**json.loads(reply.stdout)[0])
