"""Records the guards' data, or shows one case: ``python -m tests.guards record | show NAME``.

Record again only for a change that is meant, and say in the commit which cases differ and why.
"""

import json
import sys

from batchsched.api.decision import to_json
from batchsched.manifests.writer import to_json as manifests_of
from tests.guards import cases, digests
from tests.guards.test_decisions import RECORDED


def record() -> int:
    """Write what is decided now."""
    lines = []
    for family, make in cases.families().items():
        lines += [f"# {family}", *(digests.line(case, decision) for case, decision in make())]
    RECORDED.write_text("\n".join(lines) + "\n")
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
        case ["record"]:
            return record()
        case ["show", name]:
            return show(name)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
