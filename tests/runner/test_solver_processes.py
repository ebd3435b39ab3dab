"""The processes of the solver: equal solutions, also after a process was killed, and no process outlives its parent."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from batchsched.framework.runtime.registry import standard_registry
from batchsched.record.file import SessionRecord, read_session_file, write_session_file
from batchsched.runner.session_runner import (
    SessionRunner,
    close_unused_solver_processes,
    shared_solver_processes,
)
from batchsched.runner.solver_processes import MAX_LOSSES, SolverProcesses
from batchsched.session.session import decide
from batchsched.solver.greedy import solve_greedy
from batchsched.solver.improvement.search import improve_solution
from batchsched.solver.problem import SolverBudget
from bench.solver.instances import partitioned
from bench.solver.manifests import items
from tests.guards.manifests import NOW, snapshot_of
from tests.hash_seeds import outputs_by_hash_seed
from tests.runner.process_functions import add, end, fail, wait
from tests.session.scenario import profile
from tests.solver.test_step_solver import contended, content

ROOT = Path(__file__).parents[2]
SECONDS = 60.0


@pytest.fixture
def processes() -> Iterator[SolverProcesses]:
    made = SolverProcesses(2)
    yield made
    made.close()


def children() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if "spawn_main" in " ".join(one.cmdline())]


def test_a_process_has_the_last_shared_input_and_starts_with_its_first_function(processes: SolverProcesses):
    first = processes.share_input(10)
    assert children() == []
    assert first.submit(add, 1).wait_for_result(SECONDS) == 11
    process = children()
    second = processes.share_input(20)
    assert second.submit(add, 1).wait_for_result(SECONDS) == 21
    assert first.submit(add, 2).wait_for_result(SECONDS) == 12
    assert [one.pid for one in children()] == [one.pid for one in process]


def test_an_error_of_a_function_is_raised(processes: SolverProcesses):
    with pytest.raises(ZeroDivisionError):
        processes.share_input(1).submit(fail, 1).wait_for_result(SECONDS)


def test_a_lost_process_gives_no_result_and_is_replaced_a_few_times(
    processes: SolverProcesses, caplog: pytest.LogCaptureFixture
):
    shared = processes.share_input(1)
    for _ in range(MAX_LOSSES + 1):
        assert shared.submit(end, 1).wait_for_result(SECONDS) is None
        assert shared.submit(add, 1).wait_for_result(SECONDS) == 2, "only losses in a row count"
    for _ in range(MAX_LOSSES):
        assert shared.submit(end, 1).wait_for_result(SECONDS) is None
    assert "lost 3 times, and is not started again" in caplog.text
    assert shared.submit(add, 1).wait_for_result(SECONDS) is None
    assert shared.submit(add, 1).wait_for_result(SECONDS) is None


def test_a_function_that_is_not_finished_in_its_time_is_killed(processes: SolverProcesses):
    shared = processes.share_input(1000.0)
    pending = shared.submit(wait, 0)
    assert pending.wait_for_result(5.0) is None
    assert pending.wait_for_result(SECONDS) is None
    assert processes.share_input(1).submit(add, 1).wait_for_result(SECONDS) == 2


def test_a_function_that_has_not_started_is_withdrawn(processes: SolverProcesses):
    shared = processes.share_input(1.0)
    first, second = shared.submit(wait, 0), shared.submit(wait, 0)
    assert second.cancel_if_not_started()
    assert not first.cancel_if_not_started()
    assert first.wait_for_result(SECONDS) == 1.0


def test_two_processes_find_the_solution_of_one_also_after_one_was_killed(processes: SolverProcesses):
    problem = contended(1)
    greedy = solve_greedy(problem)
    alone = content(improve_solution(problem, greedy, 1.0, SolverBudget(), 3))
    for _ in range(2):
        assert content(improve_solution(problem, greedy, 1.0, SolverBudget(), 3, processes)) == alone
    (child,) = children()
    child.kill()
    for _ in range(2):
        assert content(improve_solution(problem, greedy, 1.0, SolverBudget(), 3, processes)) == alone


def test_the_solution_of_two_processes_does_not_depend_on_the_hash_seed():
    script = (
        "from batchsched.runner.solver_processes import SolverProcesses;"
        "from batchsched.solver.greedy import solve_greedy;"
        "from batchsched.solver.improvement.search import improve_solution;"
        "from batchsched.solver.problem import SolverBudget;"
        "from tests.solver.test_step_solver import contended, content;"
        "problem = contended(1);"
        "print(content(improve_solution(problem, solve_greedy(problem), 0.5, SolverBudget(), 3, SolverProcesses(2))))"
    )
    problem = contended(1)
    alone = content(improve_solution(problem, solve_greedy(problem), 0.5, SolverBudget(), 3))
    assert set(outputs_by_hash_seed(script)) == {str(alone)}


def test_the_processes_end_when_their_parent_is_killed():
    script = (
        "import time;"
        "from batchsched.runner.solver_processes import SolverProcesses;"
        "from tests.runner.process_functions import add;"
        "print(SolverProcesses(2).share_input(1).submit(add, 1).wait_for_result(60), flush=True);"
        "time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert parent.stdout is not None
    with parent.stdout:
        assert parent.stdout.readline() == "2\n"
        descendants = psutil.Process(parent.pid).children(recursive=True)
        parent.kill()
        parent.wait()
    assert descendants
    _, alive = psutil.wait_procs(descendants, timeout=30)
    assert alive == []


def test_one_worker_has_no_processes_and_equal_numbers_share_them():
    assert shared_solver_processes(1) is None
    assert shared_solver_processes(3) is shared_solver_processes(3)


def test_the_sessions_of_a_profile_use_the_processes_that_they_are_given(processes: SolverProcesses):
    two = profile(solver={"workers": 2})
    runner = SessionRunner(two, workers=processes)
    for given in (runner, runner.without_hung_plugins()):
        assert standard_registry().create_pipeline(two, given.outside).workers is processes
    assert standard_registry().create_pipeline(two, SessionRunner(two).outside).workers is None


def test_a_recorded_session_of_two_processes_states_them_and_repeats_without_any(
    processes: SolverProcesses, tmp_path: Path
):
    snapshot = snapshot_of(items(partitioned(128, 24, 1)))
    searched = {"exactVariables": 0, "deterministicBudget": 3.0, "gap": 0.0}
    two = profile(solver={**searched, "workers": 2})
    runner = SessionRunner(two, workers=processes)
    decision = runner.decide_from_snapshot(snapshot, NOW, 3)
    assert len(children()) == 1
    write_session_file(tmp_path / "session", SessionRecord(snapshot, two, NOW, 3, decision))
    recorded = read_session_file(tmp_path / "session")
    assert recorded.profile.solver.workers == 2
    assert decide(recorded.snapshot, recorded.profile, NOW, 3) == recorded.decision == decision
    assert decide(snapshot, profile(solver=searched), NOW, 3) == decision


def test_processes_that_no_profile_uses_any_more_are_ended():
    unused, used = shared_solver_processes(4), shared_solver_processes(3)
    assert unused is not None
    assert unused.share_input(1).submit(add, 1).wait_for_result(SECONDS) == 2
    (process,) = children()
    close_unused_solver_processes([profile(solver={"workers": 3}), profile()])
    process.wait(SECONDS)
    assert shared_solver_processes(3) is used
    assert shared_solver_processes(4) is not unused
    close_unused_solver_processes(())
