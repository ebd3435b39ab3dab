"""Run a bench by name, or list the benches: ``python -m bench [NAME [ARGUMENTS…]]``."""

import importlib
import pkgutil
import sys
from pathlib import Path
from types import ModuleType


def names() -> list[str]:
    """Return the names of the benches."""
    return sorted(
        module.name
        for module in pkgutil.iter_modules([str(Path(__file__).parent)])
        if module.name != "__main__"
    )


def title(bench: ModuleType) -> str:
    """Return the first line of the docstring of a bench."""
    return (bench.__doc__ or bench.__name__).strip().splitlines()[0]


def main(arguments: list[str]) -> int:
    """Run the bench that the first argument names, and return its exit code; without a name, list the benches."""
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(__doc__, end="\n\n")
        for name in names():
            print(f"{name:15} {title(importlib.import_module(f'bench.{name}'))}")
        return 0
    if arguments[0] not in names():
        print(f"no bench is called {arguments[0]!r}; expected one of: {', '.join(names())}", file=sys.stderr)
        return 2
    bench = importlib.import_module(f"bench.{arguments[0]}")
    print(f"== {arguments[0]}: {title(bench)}", flush=True)
    return int(bench.main(arguments[1:]) or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
