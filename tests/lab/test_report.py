import json
import re
from dataclasses import replace

import pytest
from plotly import graph_objects as go

from batchsched.lab.figure import DARK, LIGHT
from batchsched.lab.plan import plan_runs
from batchsched.lab.report import describe_cluster, render_simulation, render_sweep
from batchsched.lab.simulation import build_outcome, simulate_run
from batchsched.simulator.result import RunResult, Series
from tests.lab import runs
from tests.lab.runs import played
from tests.lab.scenarios import scenario

OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NODES = runs.cluster(16)


@pytest.fixture(scope="module")
def simulated():
    made = [played("FIFO-greedy"), played("batchsched", shortest_first=True)]
    return [build_outcome(result, (), 7) for result in made]


@pytest.fixture(scope="module")
def swept():
    return [simulate_run(run) for run in plan_runs(scenario())]


def simulation_page(outcomes):
    return render_simulation("a made-up day", outcomes, NODES, [("Seasons", "one")])


@pytest.fixture(scope="module")
def pages(simulated, swept):
    """The reports of both kinds."""
    return {"simulation": simulation_page(simulated), "sweep": render_sweep("small", swept)}


@pytest.fixture(scope="module", params=["simulation", "sweep"])
def page(request, pages):
    return pages[request.param]


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


@pytest.mark.parametrize(
    "kind, texts",
    [
        (
            "simulation",
            ("a made-up day", "16 nodes, 128 GPUs", "Seasons", "batchsched 0.1.0", "FIFO-greedy"),
        ),
        (
            "sweep",
            (
                "batchsched lab: small",
                "20 gangs",
                "fcfs, sjf",
                "0, 1",
                "Fairness error",
                "±",
                "nvidia.com/gpu",
            ),
        ),
    ],
)
def test_the_page_states_what_was_run(pages, kind, texts):
    assert [text for text in texts if text not in pages[kind]] == []


def test_a_sweep_has_figures_of_fairness_waits_and_use(pages):
    keys = "fairness-error-0 jain-0 shares-0-0 shares-1-0 wait-by-queue-0 slowdown-by-size-0 queue-length-0"
    assert set(keys.split()) <= set(data(pages["sweep"])["figures"])


def test_plotly_is_in_the_page_once_and_the_page_stays_small(page):
    assert page.count("* plotly.js v") == 1
    assert len(page.encode()) < 8_000_000


def test_the_page_itself_has_no_external_address(page):
    own_text = re.sub(r"<script>\s*/\*\*.*?</script>", "", page, count=1, flags=re.DOTALL)
    assert len(own_text) < len(page) / 4
    assert re.search(r"https?://|//cdn|@import", own_text) is None


def test_equal_outcomes_give_equal_pages(pages, simulated, swept):
    assert simulation_page(simulated) == pages["simulation"]
    assert render_sweep("small", swept) == pages["sweep"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_plotly_accepts_every_figure_in_every_theme(page, theme):
    content = data(page)
    assert content["themes"] == {"light": LIGHT, "dark": DARK}
    for figure in content["figures"].values():
        go.Figure(painted(figure, content["themes"][theme]))
    go.Layout(painted(content["frame"], content["themes"][theme]))
    figures = json.dumps(painted(content["figures"], content["themes"][theme]))
    assert "$" not in re.sub(r'"[^"$]*"', "", figures)


def test_every_figure_is_in_the_page(page):
    places = re.findall(r'class="plot" id="([a-z0-9-]+)"', page)
    assert sorted(places) == sorted(data(page)["figures"])
    assert len(places) == len(set(places)) >= 12


def test_the_best_of_a_column_is_bold_and_equal_values_are_not(simulated):
    rows = re.findall(r"<tr><th scope=\"row\">.*?</tr>", simulation_page(simulated))
    cells = [re.findall(r"<td( class=\"best\")?>([^<]*)", row) for row in rows]
    best = ["".join("*" if mark else "." for mark, _ in row) for row in cells]
    assert len(best) == 2
    assert all({first, second} != {"*"} for first, second in zip(*best, strict=True))
    assert (best[0][-1], best[1][-1]) == (".", ".")  # all gangs are done under both
    assert best[1][2] == "*"  # the mean slowdown is lower if the smallest gang is first
    assert cells[0][-1][1] == str(len(simulated[0].result.gangs))
    assert 'class="best"' not in simulation_page(simulated[:1])


def test_bars_have_a_colour_and_a_text_each(pages):
    figures = data(pages["simulation"])["figures"]
    (bars,) = figures["bars-meanwait"]["data"]
    assert len(set(bars["marker"]["color"])) == len(bars["text"]) == 2


def test_a_name_with_markup_is_escaped(simulated):
    name = "</script><script>document.title='x'</script>"
    result = simulated[0].result
    gangs = (replace(result.gangs[0], key=name), *result.gangs[1:])
    hostile = replace(simulated[0], result=replace(result, policy=name, gangs=gangs))
    page = render_simulation(name, [hostile], NODES)
    assert name not in page
    assert data(page)["figures"]["queue-length"]["data"][0]["name"] == name


def test_a_run_without_gangs_makes_a_page():
    empty = RunResult("nothing", "a", (), Series((), {}, {}, (), ()), sessions=0)
    assert "0 nodes" in render_simulation("nothing", [build_outcome(empty, (), 0)], ())


def test_a_cluster_is_described_in_a_line():
    assert describe_cluster(runs.cluster(1)) == "1 node, 8 GPUs, 96 CPUs, 768Gi memory"


def test_several_workloads_have_tables_and_figures_of_their_own(swept):
    other = [outcome.with_names("second", outcome.policy) for outcome in swept]
    both = render_sweep("small", [*swept, *other])
    assert ">drawn</h2>" in both
    assert ">second</h2>" in both
    assert {"fairness-error-0", "fairness-error-1"} <= set(data(both)["figures"])


def test_one_policy_and_one_seed_have_no_interval(swept):
    assert "±" not in json.dumps(data(render_sweep("small", swept[:1]))["figures"])


@pytest.mark.browser
@pytest.mark.parametrize(
    "kind, width, key",
    [
        ("simulation", 1280, "queue-length"),
        ("simulation", 800, "queue-length"),
        ("sweep", 1280, "fairness-error-0"),
    ],
)
def test_the_report_opens_offline_in_light_and_dark(chromium, tmp_path, pages, kind, width, key):
    from playwright.sync_api import sync_playwright

    report = tmp_path / "report.html"
    report.write_text(pages[kind], "utf-8")
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=list(OPTIONS)) as browser,
    ):
        context = browser.new_context(
            offline=True, color_scheme="dark", viewport={"width": width, "height": 900}
        )
        page = context.new_page()
        requested, complaints = [], []
        page.on("request", lambda request: requested.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(report.as_uri())
        page.wait_for_selector("html[data-drawn=dark]", timeout=120_000)
        assert background(page, key) == "rgb(20, 24, 29)"
        assert plots(page) == len(data(report.read_text("utf-8"))["figures"])
        assert page.evaluate("document.documentElement.scrollWidth") <= width

        page.click("#toggle")
        page.wait_for_selector("html[data-drawn=light]", timeout=120_000)
        assert background(page, key) == "rgb(255, 255, 255)"
        page.evaluate(
            "window.noticed = matchMedia('(prefers-color-scheme: dark)');"
            "noticed.addEventListener('change', () => { document.documentElement.dataset.noticed = 'yes'; })"
        )
        page.emulate_media(color_scheme="light")
        page.wait_for_selector("html[data-noticed=yes]")  # two changes between frames would be none at all
        page.emulate_media(color_scheme="dark")
        page.wait_for_selector("html[data-drawn=dark]", timeout=120_000)
        assert background(page, key) == "rgb(20, 24, 29)"
        assert requested == [report.as_uri()]
        assert complaints == []


def background(page, key):
    """The colour behind a plot, as drawn."""
    return page.evaluate(f"getComputedStyle(document.querySelector('#{key} .main-svg')).backgroundColor")


def plots(page):
    """How many plots have something in them."""
    return page.evaluate("document.querySelectorAll('.plot .main-svg:first-of-type').length")
