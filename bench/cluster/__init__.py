"""A real API server: pods bound per second, next to kube-scheduler and to binding alone, in one run.

`idle` as the first argument: a single pod on a large, otherwise idle cluster.
"""

from collections.abc import Sequence

from bench.cluster import idle, matrix


def main(arguments: Sequence[str]) -> int:
    """Run the matrix, or the bench `idle`."""
    if arguments[:1] == ["idle"]:
        return idle.main(arguments[1:])
    return matrix.main(arguments)


__all__ = ["main"]
