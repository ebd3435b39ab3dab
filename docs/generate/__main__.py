"""Generated files: reference pages of this site, JSON Schemas and CRDs.

``python -m docs.generate`` writes every file of ``PAGES`` that is out of date. ``--check`` writes nothing and exits
with 1 if a file is out of date. To add a file, write a function that returns its text and add it to ``PAGES``.
"""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

PAGES: dict[str, str] = {
    # file below the root: "module:function", a function without arguments that returns the whole text
    "batchsched/manifests/known_fields.json": "docs.generate.known_fields:known_fields",
    "crds/podgroups.yaml": "batchsched.manifests.schemas:pod_group_crd_yaml",
    "crds/queues.yaml": "batchsched.manifests.schemas:queue_crd_yaml",
    "crds/topologies.yaml": "batchsched.manifests.schemas:topology_crd_yaml",
    "docs/assets/extension-points.svg": "docs.generate.diagrams:extension_points",
    "docs/assets/gang-phases.svg": "docs.generate.diagrams:gang_phases",
    "docs/assets/queue-states.svg": "docs.generate.diagrams:queue_states",
    "docs/assets/queue-tree.svg": "docs.generate.diagrams:queue_tree",
    "docs/assets/session.svg": "docs.generate.diagrams:session",
    "docs/assets/workload.svg": "docs.generate.diagrams:workload",
    "docs/reference/cli.md": "docs.generate.commands:commands",
    "docs/reference/configuration.md": "docs.generate.configuration:configuration",
    "docs/reference/events.md": "docs.generate.events:events",
    "docs/reference/gang-life.md": "docs.generate.tables:gang_life",
    "docs/reference/metrics.md": "docs.generate.tables:metrics",
    "docs/reference/plugins.md": "docs.generate.plugins:plugins",
    "docs/reference/pod-life.md": "docs.generate.plugins:pod_life",
    "docs/reference/policies.md": "docs.generate.policies:policies",
    "docs/reference/reasons.md": "docs.generate.tables:reasons",
    "docs/reference/scheduling-queue.md": "docs.generate.tables:scheduling_queue",
    "docs/reference/schemas/config.json": "docs.generate.commands:config_schema",
    "docs/reference/schemas/decision.json": "docs.generate.commands:decision_schema",
    "docs/reference/schemas/podgroup.json": "docs.generate.commands:pod_group_schema",
    "docs/reference/schemas/queue.json": "docs.generate.commands:queue_schema",
    "docs/reference/schemas/snapshot.json": "docs.generate.commands:snapshot_schema",
    "docs/reference/schemas/topology.json": "docs.generate.commands:topology_schema",
}


def render(page: str) -> str:
    """Return the text of a file as the code produces it now, with one newline at its end."""
    module, _, function = PAGES[page].partition(":")
    write: Callable[[], str] = getattr(importlib.import_module(module), function)
    return write().rstrip("\n") + "\n"


def stale() -> list[str]:
    """Return the names of the files that are out of date."""
    return [
        page
        for page in PAGES
        if not (ROOT / page).exists() or (ROOT / page).read_text("utf-8") != render(page)
    ]


def main(arguments: list[str]) -> int:
    """Write the files that are out of date; with ``--check`` only name them and return 1."""
    pages = stale()
    if "--check" in arguments:
        for page in pages:
            print(f"{page} is out of date: run `make generate` and commit the result", file=sys.stderr)
        return 1 if pages else 0
    for page in pages:
        (ROOT / page).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / page).write_text(render(page), "utf-8")
        print(f"wrote {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
