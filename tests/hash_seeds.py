"""Programs that run in new processes with several hash seeds: the order of sets must not change what they print."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


def outputs_by_hash_seed(program: str, *arguments: str, seeds: tuple[str, ...] = ("1", "4711")) -> list[str]:
    """Run a Python program once for each hash seed, and return what it prints each time.

    Raises:
      CalledProcessError: A process ended with an exit code other than 0.
    """
    return [
        subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        ).stdout.strip()
        for seed in seeds
    ]
