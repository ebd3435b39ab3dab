"""A sweep so slow that it can be killed in the middle: `python -m tests.lab.sweeping SCENARIO DIR`."""

import sys
import time
from pathlib import Path

from batchsched.lab.plan import plan_runs
from batchsched.lab.results import execute_and_encode_run, execute_missing_runs
from batchsched.lab.scenario import load_scenario
from batchsched.lab.workers import open_workers


class Slow:
    """Workers that rest before every run but the first."""

    def __init__(self, crew):
        self._crew = crew
        self._begun = 0

    def submit(self, _, run, /):
        self._begun += 1
        return self._crew.submit(execute_and_encode_run if self._begun == 1 else rested, run)


def rested(run):
    """Make a run, an hour from now."""
    time.sleep(3600)
    return execute_and_encode_run(run)


if __name__ == "__main__":
    with open_workers(None, 2) as crew:
        execute_missing_runs(plan_runs(load_scenario(Path(sys.argv[1]))), Path(sys.argv[2]), Slow(crew))
