"""Records the guards' data, or shows one case: ``python -m tests.guards record [WHAT] | show NAME``.

WHAT is decisions, surface or simulations; all of them where nothing is named.

Record again only for a change that is meant, and say in the commit which cases differ and why.
"""

import json
import sys
from collections.abc import Iterator

from batchsched.api.decision import to_json
from batchsched.manifests.writer import encode_snapshot_as_json as manifests_of
from tests.guards import (
    cases,
    digests,
    simulations,
    surface,
    test_decisions,
    test_simulations,
    test_surface,
)


def decisions() -> Iterator[str]:
    """Return a line for each decision, family by family."""
    for family, make in cases.families().items():
        yield f"# {family}"
        yield from (digests.line(case, decision) for case, decision in make())


def record(names: list[str]) -> int:
    """Write what there is now."""
    made = {
        "decisions": (test_decisions.RECORDED, decisions),
        "surface": (test_surface.RECORDED, lambda: surface.text().splitlines()),
        "simulations": (test_simulations.RECORDED, simulations.lines),
    }
    for name in names or list(made):
        path, lines = made[name]
        path.write_text("\n".join(lines()) + "\n")
    return 0


def show(name: str) -> int:
    """Print the input and the decision of the case with a name."""
    for make in cases.families().values():
        for case, decision in make():
            if case.name == name:
                print(manifests_of(case.snapshot).decode())
                beside = {"held": case.snapshot.held, "reservations": case.snapshot.reservations}
                print(
                    f"# settings {json.dumps(case.settings)}, now {case.now:.0f}, seed {case.seed}, {beside}"
                )
                print(json.dumps(json.loads(to_json(decision)), indent=2, ensure_ascii=False))
                return 0
    print(f"no case is named {name}", file=sys.stderr)
    return 2


def main(arguments: list[str]) -> int:
    """Run what the arguments name."""
    match arguments:
        case ["record", *names]:
            return record(names)
        case ["show", name]:
            return show(name)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
