"""Every page in a real browser, checked by axe-core: light and dark, wide and narrow."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from batchsched.cli import run_command
from batchsched.lab.result_pages import ResultPages
from batchsched.observability.activity_recorder import ActivityRecorder
from batchsched.observability.http.status_page import StatusPage
from tests.cli.test_serving import OPTIONS
from tests.lab.scenarios import written
from tests.service.town import Town, service_of
from tests.session.scenario import cluster, gang, node, queue, topology

WIDTHS = (1400, 420)
SCHEMES = ("light", "dark")
PAGES = ("demo", "simulate", "lab-run", "lab-tune", "lab-runs", "scheduler")
TUNE = {
    "policy": "fcfs",
    "trials": 2,
    "heldOut": 2,
    "objective": {"minimise": "meanSlowdown"},
    "parameters": {"profile.backfill": {"choices": ["none", "easy"]}},
}


def run(*arguments: object) -> None:
    assert run_command([str(argument) for argument in arguments]) == 0


async def scheduler_page() -> str:
    """Return the page of a scheduler that has a placed gang, refused gangs, queues, and racks of nodes."""
    machines = [node(f"n{number}", {"rack": f"r{number // 2}"}, gpu=8) for number in range(6)]
    town = Town(
        cluster(
            machines,
            gang("placed", 4),
            gang("too-large", 60),
            gang("also-too-large", 30),
            queues=(queue("research", limit={"cpu": "64"}), queue("vision", parent="research")),
            topologies=(topology("rack"),),
        )
    )
    await town.turns(2)
    service = service_of(town)
    observation = ActivityRecorder(town.clock, 4)
    observation.refusals = {refusal.pod_group: refusal for refusal in town.decisions[-1].refusals}
    return await StatusPage(service, observation).render()


def write_pages(folder: Path) -> None:
    """Write one page of each kind into a folder, as the commands and the scheduler do."""
    run("demo", "--gangs", 30, "--report", folder / "demo.html")
    policies = ("--policy", "fcfs", "--policy", "headroom")
    run("simulate", "generate", "--gangs", 30, *policies, "--report", folder / "simulate.html")
    scenario = written(folder / "small.yaml", tune=TUNE)
    run("lab", "run", scenario, "--to", folder / "results", "--processes", 1)
    run("lab", "tune", scenario, "--to", folder / "results", "--processes", 1)
    results = ResultPages(folder / "results")
    (folder / "lab-run.html").write_text(results.report_html(), "utf-8")
    (folder / "lab-runs.html").write_text(results.runs_html(), "utf-8")
    (folder / "results" / "tuning.html").rename(folder / "lab-tune.html")
    (folder / "scheduler.html").write_text(asyncio.run(scheduler_page()), "utf-8")


def serious_violations(page: Any, scheme: str) -> list[str]:
    """Return what axe-core finds on a page in one color scheme, wide and narrow."""
    from axe_playwright_python.sync_playwright import Axe

    page.emulate_media(color_scheme=scheme)
    texts = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        if page.query_selector("#report"):
            page.wait_for_selector(f"html[data-drawn={scheme}]", timeout=120_000)
        for violation in Axe().run(page).response["violations"]:
            if violation["impact"] in ("serious", "critical"):
                texts += [
                    f"{scheme}, {width} px: {violation['id']}: {element['html'][:200]}: {element['failureSummary']}"
                    for element in violation["nodes"]
                ]
    return texts


@pytest.mark.browser
@pytest.mark.slow
def test_no_page_has_a_serious_accessibility_violation(chromium, tmp_path):
    from playwright.sync_api import sync_playwright

    write_pages(tmp_path)
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=list(OPTIONS)) as browser,
    ):
        # The checker is a script, which the content security policy of the pages would block.
        context = browser.new_context(bypass_csp=True)
        broken = context.new_page()
        broken.set_content("<img src='data:,'>")
        assert "image-alt" in "".join(serious_violations(broken, "light"))  # the checker works
        found = {}
        for name in PAGES:
            page = context.new_page()
            page.goto((tmp_path / f"{name}.html").as_uri())
            found[name] = [text for scheme in SCHEMES for text in serious_violations(page, scheme)]
            page.close()
    assert found == {name: [] for name in PAGES}
