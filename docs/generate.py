"""The files that are written by the code, pages of this site and the CRDs: write them, or say which are stale.

``python docs/generate.py`` writes every file of ``PAGES``; ``--check`` writes nothing and exits with 1 when
one differs from what would be written. To add one, write a function that returns its Markdown (JSON, YAML),
beside the code that it describes, and name it here.
"""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent

PAGES: dict[str, str] = {
    # file below the root: "module:function", a function without arguments that returns the whole text
    "crds/podgroups.yaml": "batchsched.manifests.crd:pod_groups",
    "crds/queues.yaml": "batchsched.manifests.crd:queues",
    "crds/topologies.yaml": "batchsched.manifests.crd:topologies",
    "docs/reference/cli.md": "batchsched.cli.page:page",
    "docs/reference/configuration.md": "batchsched.config.page:page",
    "docs/reference/events.md": "batchsched.controllers.status.page:page",
    "docs/reference/gang-life.md": "batchsched.api.gang_phase:page",
    "docs/reference/metrics.md": "batchsched.observability.metrics:page",
    "docs/reference/plugins.md": "batchsched.framework.page:plugins",
    "docs/reference/pod-life.md": "batchsched.framework.page:pod_life",
    "docs/reference/policies.md": "batchsched.queues.page:page",
    "docs/reference/reasons.md": "batchsched.api.decision:page",
    "docs/reference/scheduling-queue.md": "batchsched.scheduling_queue.states:page",
    "docs/reference/schemas/config.json": "batchsched.cli.page:config_schema",
    "docs/reference/schemas/decision.json": "batchsched.cli.page:decision_schema",
    "docs/reference/schemas/podgroup.json": "batchsched.cli.page:pod_group_schema",
    "docs/reference/schemas/queue.json": "batchsched.cli.page:queue_schema",
    "docs/reference/schemas/snapshot.json": "batchsched.cli.page:snapshot_schema",
    "docs/reference/schemas/topology.json": "batchsched.cli.page:topology_schema",
}


def render(page: str) -> str:
    """The text of a page as the code has it now, with one newline at its end."""
    module, _, function = PAGES[page].partition(":")
    write: Callable[[], str] = getattr(importlib.import_module(module), function)
    return write().rstrip("\n") + "\n"


def stale() -> list[str]:
    """The pages that differ from what the code says, by name."""
    return [
        page
        for page in PAGES
        if not (ROOT / page).exists() or (ROOT / page).read_text("utf-8") != render(page)
    ]


def main(arguments: list[str]) -> int:
    """Write the pages that are stale, or with ``--check`` name them and fail."""
    pages = stale()
    if "--check" in arguments:
        for page in pages:
            print(f"{page} is stale: run `make generate` and commit the result", file=sys.stderr)
        return 1 if pages else 0
    for page in pages:
        (ROOT / page).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / page).write_text(render(page), "utf-8")
        print(f"wrote {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
