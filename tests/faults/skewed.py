"""`batchsched` with a wrong system clock: `python -m tests.faults.skewed FILE run …`.

FILE holds the seconds by which the clock is wrong, and is read again at each look at the clock, so that it can jump.
"""

import sys
import time
from pathlib import Path

from batchsched.cli import main
from batchsched.kube import clock


def wrong(error: Path) -> None:
    """Shift the clock by the seconds in a file."""

    def now(self: clock.SystemClock) -> float:
        return time.time() + float(error.read_text())

    clock.SystemClock.now = now  # type: ignore[method-assign]


if __name__ == "__main__":
    wrong(Path(sys.argv.pop(1)))
    main()
