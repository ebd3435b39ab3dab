"""A real API server: pods bound a second, beside kube-scheduler and the floor of binding alone, in one run.

`idle` as the first argument: a lone pod on a large cluster on which nothing else happens.
"""

from collections.abc import Sequence

from bench.cluster import idle, matrix


def main(arguments: Sequence[str]) -> int:
    """Run the matrix, or what `idle` measures."""
    if arguments[:1] == ["idle"]:
        return idle.main(arguments[1:])
    return matrix.main(arguments)


__all__ = ["main"]
