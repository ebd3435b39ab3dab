"""The pages of this site that are written by the code: write them, or say which are stale.

``python docs/generate.py`` writes every page of ``PAGES``; ``--check`` writes nothing and exits with 1 when
one differs from what would be written. To add a page, write a function that returns its Markdown (or its
JSON), beside the code that it describes, and name it here.
"""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).parent

PAGES: dict[str, str] = {
    # page below docs/: "module:function", a function without arguments that returns the whole text
    "reference/cli.md": "batchsched.cli.page:page",
    "reference/configuration.md": "batchsched.settings.page:page",
    "reference/gang-life.md": "batchsched.model.life:page",
    "reference/plugins.md": "batchsched.framework.page:plugins",
    "reference/pod-life.md": "batchsched.framework.page:pod_life",
    "reference/policies.md": "batchsched.ordering.page:page",
    "reference/reasons.md": "batchsched.model.decision:page",
    "reference/scheduling-queue.md": "batchsched.session.scheduling_queue.places:page",
    "reference/schemas/config.json": "batchsched.cli.page:config_schema",
    "reference/schemas/decision.json": "batchsched.cli.page:decision_schema",
    "reference/schemas/podgroup.json": "batchsched.cli.page:pod_group_schema",
    "reference/schemas/queue.json": "batchsched.cli.page:queue_schema",
    "reference/schemas/snapshot.json": "batchsched.cli.page:snapshot_schema",
    "reference/schemas/topology.json": "batchsched.cli.page:topology_schema",
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
        if not (DOCS / page).exists() or (DOCS / page).read_text("utf-8") != render(page)
    ]


def main(arguments: list[str]) -> int:
    """Write the pages that are stale, or with ``--check`` name them and fail."""
    pages = stale()
    if "--check" in arguments:
        for page in pages:
            print(f"docs/{page} is stale: run `make generate` and commit the result", file=sys.stderr)
        return 1 if pages else 0
    for page in pages:
        (DOCS / page).parent.mkdir(parents=True, exist_ok=True)
        (DOCS / page).write_text(render(page), "utf-8")
        print(f"wrote docs/{page}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
