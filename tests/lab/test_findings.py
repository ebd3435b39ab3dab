import json
from dataclasses import replace

import pytest
from plotly import graph_objects as go

from batchsched.lab.findings import render, write
from batchsched.lab.plan import plan
from batchsched.lab.sweep import outcome_of
from tests.lab.scenarios import scenario
from tests.lab.test_report import OPTIONS, background, data, painted, plots


@pytest.fixture(scope="module")
def outcomes():
    return [outcome_of(run) for run in plan(scenario())]


@pytest.fixture(scope="module")
def page(outcomes):
    return render("small", outcomes)


def test_the_page_says_what_was_tried_and_how_policies_differ(page):
    for said in (
        "batchsched lab: small",
        "20 gangs",
        "fcfs, sjf",
        "0, 1",
        "Fairness error",
        "±",
        "nvidia.com/gpu",
    ):
        assert said in page


@pytest.mark.parametrize(
    "key",
    [
        "fairness-error-0",
        "jain-0",
        "shares-0-0",
        "shares-1-0",
        "wait-by-queue-0",
        "slowdown-by-size-0",
        "queue-length-0",
    ],
)
def test_what_a_sweep_shows_is_there(page, key):
    assert key in data(page)["figures"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_plotly_accepts_every_figure_in_every_theme(page, theme):
    told = data(page)
    for figure in told["figures"].values():
        go.Figure(painted(figure, told["themes"][theme]))


def test_equal_outcomes_give_equal_pages(page, outcomes):
    assert render("small", outcomes) == page


def test_several_workloads_have_tables_and_figures_of_their_own(outcomes):
    other = [replace(one, result=replace(one.result, workload="second")) for one in outcomes]
    both = render("small", [*outcomes, *other])
    assert ">drawn</h2>" in both
    assert ">second</h2>" in both
    assert {"fairness-error-0", "fairness-error-1"} <= set(data(both)["figures"])


def test_one_policy_and_one_seed_make_a_page(outcomes):
    assert "±" not in json.dumps(data(render("small", outcomes[:1]))["figures"])


@pytest.mark.browser
def test_the_report_of_a_sweep_opens_offline_in_light_and_dark(chromium, tmp_path, outcomes):
    from playwright.sync_api import sync_playwright

    report = tmp_path / "report.html"
    write(report, "small", outcomes)
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=list(OPTIONS)) as browser,
    ):
        page = browser.new_context(
            offline=True, color_scheme="dark", viewport={"width": 1280, "height": 900}
        ).new_page()
        complaints = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(report.as_uri())
        page.wait_for_selector("html[data-drawn=dark]", timeout=120_000)
        assert background(page, "fairness-error-0") == "rgb(20, 24, 29)"
        assert plots(page) == len(data(report.read_text("utf-8"))["figures"])
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
        page.click("#toggle")
        page.wait_for_selector("html[data-drawn=light]", timeout=120_000)
        assert background(page, "fairness-error-0") == "rgb(255, 255, 255)"
        assert complaints == []
