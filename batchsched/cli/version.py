"""`batchsched version`: print the version."""

import sys


def version() -> None:
    """Print the version of batchsched."""
    from batchsched import __version__

    sys.stdout.write(f"batchsched {__version__}\n")
