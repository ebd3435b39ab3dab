"""Run one bench by name, or all of them: ``python -m bench [NAME [ARGUMENTS…]]``."""

import importlib
import pkgutil
import sys
from pathlib import Path


def names() -> list[str]:
    """The benches by name."""
    return sorted(
        found.name for found in pkgutil.iter_modules([str(Path(__file__).parent)]) if found.name != "__main__"
    )


def run(name: str, arguments: list[str]) -> int:
    """Run one bench and return its exit code."""
    bench = importlib.import_module(f"bench.{name}")
    title = (bench.__doc__ or name).strip().splitlines()[0]
    print(f"== {name}: {title}", flush=True)
    return int(bench.main(arguments) or 0)


def main(arguments: list[str]) -> int:
    """Run the bench that the first argument names; without arguments, run all benches with their defaults."""
    if arguments and arguments[0] in {"-h", "--help"}:
        print(__doc__)
        print("\n".join(names()))
        return 0
    if arguments and arguments[0] not in names():
        print(
            f"no bench is called {arguments[0]!r}; there are: {', '.join(names()) or 'none'}", file=sys.stderr
        )
        return 2
    chosen = arguments[:1] or names()
    return max((run(name, arguments[1:]) for name in chosen), default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
