import json
import re
from dataclasses import replace

import pytest
from plotly import graph_objects as go

from batchsched.lab.report import ReportFacts, cluster, render, write
from batchsched.lab.theme import DARK, LIGHT
from batchsched.simulator.result import RunResult, Series
from tests.lab import runs
from tests.lab.runs import played

OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
ABOUT = ReportFacts("a made-up day", 7, runs.cluster(16), (("Seasons", "one"),))


@pytest.fixture(scope="module")
def results():
    return [played("FIFO-greedy"), played("batchsched", shortest_first=True)]


@pytest.fixture(scope="module")
def page(results):
    return render(results, ABOUT)


def data(page):
    return json.loads(
        page.partition('<script id="report" type="application/json">')[2].partition("</script>")[0]
    )


def painted(value, colours):
    if isinstance(value, str):
        return colours.get(value, value)
    if isinstance(value, list):
        return [painted(one, colours) for one in value]
    return {key: painted(one, colours) for key, one in value.items()} if isinstance(value, dict) else value


def test_the_page_says_what_was_run(page):
    for said in (
        "a made-up day",
        "16 nodes, 128 GPUs",
        "Seasons",
        "batchsched 0.1.0",
        "FIFO-greedy",
        "Makespan",
    ):
        assert said in page


def test_plotly_is_in_the_page_once_and_the_page_stays_small(page):
    assert page.count("* plotly.js v") == 1
    assert len(page.encode()) < 8_000_000


def test_nothing_in_the_page_itself_points_elsewhere(page):
    ours = re.sub(r"<script>\s*/\*\*.*?</script>", "", page, count=1, flags=re.DOTALL)
    assert len(ours) < len(page) / 4
    assert re.search(r"https?://|//cdn|@import", ours) is None


def test_equal_runs_give_equal_pages(page, results):
    assert render(results, ABOUT) == page


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_plotly_accepts_every_figure_in_every_theme(page, theme):
    told = data(page)
    assert told["themes"] == {"light": LIGHT, "dark": DARK}
    for figure in told["figures"].values():
        go.Figure(painted(figure, told["themes"][theme]))
        go.Layout(painted(told["frame"], told["themes"][theme]))
    assert "$" not in re.sub(r'"[^"$]*"', "", json.dumps(painted(told["figures"], told["themes"][theme])))


def test_every_figure_has_its_place_in_the_page(page):
    places = re.findall(r'class="plot" id="([a-z0-9-]+)"', page)
    assert sorted(places) == sorted(data(page)["figures"])
    assert len(places) == len(set(places)) >= 12


def test_a_hostile_name_cannot_leave_its_place(results):
    name = "</script><script>document.title='x'</script>"
    spoilt = replace(
        results[0], policy=name, gangs=(replace(results[0].gangs[0], key=name), *results[0].gangs[1:])
    )
    page = render([spoilt], replace(ABOUT, workload=name))
    assert name not in page
    assert data(page)["figures"]["queue-length"]["data"][0]["name"] == name


def test_a_run_in_which_nothing_happened_still_makes_a_page():
    empty = RunResult("nothing", "a", (), Series((), {}, {}, (), ()), sessions=0)
    assert "0 nodes" in render([empty], ReportFacts("nothing", 0, ()))


def test_a_cluster_is_said_in_a_line():
    assert cluster(runs.cluster(1)) == "1 node, 8 GPUs, 96 CPUs, 768Gi memory"


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 800])
def test_the_report_opens_offline_in_light_and_dark(chromium, tmp_path, results, width):
    from playwright.sync_api import sync_playwright

    report = tmp_path / "report.html"
    write(report, results, ABOUT)
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=list(OPTIONS)) as browser,
    ):
        context = browser.new_context(
            offline=True, color_scheme="dark", viewport={"width": width, "height": 900}
        )
        page = context.new_page()
        asked, complaints = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(report.as_uri())
        page.wait_for_selector("html[data-drawn=dark]", timeout=120_000)
        assert background(page) == "rgb(20, 24, 29)"
        assert plots(page) == len(data(report.read_text("utf-8"))["figures"])
        assert page.evaluate("document.documentElement.scrollWidth") <= width

        page.click("#toggle")
        page.wait_for_selector("html[data-drawn=light]", timeout=120_000)
        assert background(page) == "rgb(255, 255, 255)"
        page.evaluate(
            "window.noticed = matchMedia('(prefers-color-scheme: dark)');"
            "noticed.addEventListener('change', () => { document.documentElement.dataset.noticed = 'yes'; })"
        )
        page.emulate_media(color_scheme="light")
        page.wait_for_selector("html[data-noticed=yes]")  # two changes between frames would be none at all
        page.emulate_media(color_scheme="dark")
        page.wait_for_selector("html[data-drawn=dark]", timeout=120_000)
        assert background(page) == "rgb(20, 24, 29)"
        assert asked == [report.as_uri()]
        assert complaints == []


def background(page, key="queue-length"):
    """The colour behind a plot, as drawn."""
    return page.evaluate(f"getComputedStyle(document.querySelector('#{key} .main-svg')).backgroundColor")


def plots(page):
    """How many plots have something in them."""
    return page.evaluate("document.querySelectorAll('.plot .main-svg:first-of-type').length")
