import base64
import hashlib
import html
import json
import re
from dataclasses import replace

import pytest
from plotly import graph_objects as go

from batchsched.api.decision import Refusal
from batchsched.config.schema import Profile
from batchsched.lab.definitions import ReportedRunInput, reported_run_input_of_scenario
from batchsched.lab.figure import DARK, LIGHT
from batchsched.lab.plan import plan_runs
from batchsched.lab.report import describe_cluster, render_simulation_report, render_sweep_report
from batchsched.lab.simulation import build_outcome, simulate_run
from batchsched.simulator.result import ClusterSeries, RunResult
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
COMMAND = "batchsched simulate generate --report day.html"
SETTINGS = ReportedRunInput(COMMAND, (("Seasons", "one"),))


@pytest.fixture(scope="module")
def simulated():
    made = [played("FIFO-greedy"), played("batchsched", shortest_first=True)]
    return [build_outcome(result, (), 7) for result in made]


@pytest.fixture(scope="module")
def swept():
    return [simulate_run(run) for run in plan_runs(scenario())]


def simulation_page(outcomes, settings=None):
    return render_simulation_report("a made-up day", outcomes, NODES, settings or SETTINGS)


def sweep_page(outcomes, **more):
    settings = reported_run_input_of_scenario(scenario(), "batchsched lab run small.yaml")
    return render_sweep_report("small", outcomes, settings, **more)


@pytest.fixture(scope="module")
def pages(simulated, swept):
    """The reports of both kinds."""
    return {"simulation": simulation_page(simulated), "sweep": sweep_page(swept)}


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
                "sjf",
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
    assert sweep_page(swept) == pages["sweep"]


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


def text_of(page):
    """The text of a page without scripts and markup, in one line."""
    body = page.partition("<body>")[2].replace("\u200b", "")
    return " ".join(
        re.sub(r"<[^>]*>", " ", re.sub(r"<script.*?</script>", "", body, flags=re.DOTALL)).split()
    )


def conclusion(page):
    return text_of("<body>" + page.partition('aria-label="Conclusion">')[2].partition("</section>")[0])


def test_a_simulation_starts_with_what_was_gained_and_what_it_cost(pages):
    text = conclusion(pages["simulation"])
    assert "Compared with FIFO-greedy, batchsched gains: mean wait 4.7 times shorter" in text
    assert "It costs nothing clear." in text
    assert "Each policy ran once" in text


def test_every_sentence_of_a_stated_conclusion_has_the_same_weight(simulated):
    page = simulation_page(simulated, ReportedRunInput(conclusion=("First.", "Last.")))
    assert "<p>First.</p>\n<p>Last.</p>\n</section>" in page


def test_settings_name_disabled_plugins_and_small_changes_are_not_rounded_to_none_or_all(simulated):
    disabled = {"plugins": {"postFilter": {"disabled": [{"name": "*"}]}}, "selection": "ordered"}
    profile = Profile.model_validate(disabled)
    page = simulation_page(simulated, ReportedRunInput(profiles={simulated[0].policy: profile}))
    assert "plugins.postFilter.disabled=[*]" in text_of(page)
    assert not re.search(r"<small>(?:[+-]0%|-100%)</small>", page)


def test_a_sweep_without_significant_differences_states_no_clear_difference(swept):
    same = [
        swept[0],
        swept[1],
        *(outcome.with_workload_and_policy_names("drawn", "copy") for outcome in swept[:2]),
    ]
    assert "no clear difference between fcfs and copy" in conclusion(render_sweep_report("small", same))


def test_a_gain_of_a_sweep_is_stated_only_if_its_interval_confirms_it(swept):
    def with_wait(outcome, policy, wait):
        measures = {**outcome.measures, "meanWait": wait}
        return replace(outcome, measures=measures).with_workload_and_policy_names("drawn", policy)

    base = [with_wait(swept[0], "fcfs", 7200.0), with_wait(swept[1], "fcfs", 7300.0)]
    better = [with_wait(swept[0], "fast", 3600.0), with_wait(swept[1], "fast", 3701.0)]
    text = conclusion(render_sweep_report("small", [*base, *better]))
    assert "fast gains: mean wait" in text
    assert "It costs nothing clear." in text
    unclear = [with_wait(swept[0], "maybe", 3600.0), with_wait(swept[1], "maybe", 7200.0)]
    assert "no clear difference between fcfs and maybe" in conclusion(
        render_sweep_report("small", [*base, *unclear])
    )


def test_a_single_policy_has_no_conclusion_and_no_bars(simulated):
    page = simulation_page(simulated[:1])
    assert 'aria-label="Conclusion"' not in page
    assert [key for key in data(page)["figures"] if key.startswith("bars-")] == []


def test_no_mean_is_marked_as_the_best(page):
    assert 'class="best"' not in page


def test_differences_of_a_sweep_have_an_outcome_only_if_confirmed(swept):
    marked = re.findall(r'<td class="(better|worse)">', sweep_page(swept))
    assert marked == []  # with two seeds no interval of these runs excludes 0


def test_durations_in_one_row_have_one_unit(pages):
    (row,) = re.findall(r'<tr><th scope="row">Mean wait</th>.*?</tr>', pages["simulation"])
    units = re.findall(r"<td[^>]*>[\d.,]+ (\w+)<", row)
    assert len(units) == 2
    assert len(set(units)) == 1


def test_a_chart_with_equal_bars_is_left_out(pages):
    assert "bars-done" not in data(pages["simulation"])["figures"]  # all gangs are done under both


@pytest.mark.parametrize(
    "kind, command", [("simulation", COMMAND), ("sweep", "batchsched lab run small.yaml")]
)
def test_the_page_states_the_command_that_repeats_it(pages, kind, command):
    assert f"<code>{command}</code>" in pages[kind]


def test_a_sweep_defines_its_policies_its_cluster_its_load_and_its_queues(pages):
    text = text_of(pages["sweep"])
    assert "First come, first served" in text
    assert "policy.name=sjf" in text
    assert "4 nodes with 8 GPUs each" in text
    assert "4 times the GPU time of the cluster" in text
    assert "nvidia.com/gpu 16" in text  # the guarantee of a queue


def test_gangs_that_did_not_finish_are_named(simulated):
    result = simulated[0].result
    gangs = (
        replace(
            result.gangs[0],
            started=None,
            ended=None,
            placements=(),
            refusal=Refusal("ml/job-0", "QueueLimit", "asks for 18"),
        ),
        *result.gangs[1:],
    )
    page = render_simulation_report(
        "d", [replace(simulated[0], result=replace(result, gangs=gangs)), simulated[1]], NODES
    )
    section = text_of("<body>" + page.partition("Gangs that did not finish")[2])
    assert "ml/job-0 QueueLimit FIFO-greedy asks for 18" in section
    assert "Gangs that did not finish" not in simulation_page(simulated)


def test_a_partial_sweep_compares_common_seeds_only_and_states_it(swept):
    partial = [swept[0], swept[1], swept[2]]  # fcfs with the seeds 0 and 1, sjf with the seed 0
    page = sweep_page(partial, planned=4)
    assert "This report is partial: 3 of 4 runs have finished" in conclusion(page)
    wait = next(key for key in data(page)["figures"] if key.startswith("bars-meanwait"))
    drawn = [trace["x"][0] for trace in data(page)["figures"][wait]["data"] if trace["type"] == "bar"]
    assert drawn == [swept[0].measures["meanWait"], swept[2].measures["meanWait"]]
    assert "partial" not in conclusion(sweep_page(swept, planned=4))


def test_no_control_of_a_figure_can_send_it_to_a_server(page):
    script = page.rpartition("<script>")[2]
    assert "modeBarButtons:" in script
    assert "Cloud" not in re.sub(r"showSendToCloud: false", "", script)
    assert 'plotlyServerURL: ""' in script
    assert "displaylogo: false" in script


def test_the_page_allows_only_its_own_scripts_and_no_connection(page):
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    directives = dict(part.partition(" ")[::2] for part in html.unescape(policy).split("; "))
    assert directives["default-src"] == directives["connect-src"] == directives["form-action"] == "'none'"
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert directives["script-src"] == " ".join(f"'sha256-{digest}'" for digest in digests)


def test_one_legend_names_all_policies_and_queues(pages):
    for page in pages.values():
        assert page.count('id="legends"') == 1
        drawn = data(page)
        assert not drawn["frame"]["showlegend"]
        assert not any(trace.get("showlegend") for one in drawn["figures"].values() for trace in one["data"])
    assert 'data-policy="fcfs"' in pages["sweep"]
    assert "<title>" in pages["sweep"]


def test_policies_are_never_drawn_in_colours_of_queues(page):
    for figure in data(page)["figures"].values():
        for trace in figure["data"]:
            colours = json.dumps([trace.get("line"), trace.get("marker"), trace.get("fillcolor")])
            assert ("$policy" in colours) != ("$queue" in colours) or trace.get("mode") == "text"
            assert ("policy" in trace.get("meta", {})) == ("$queue" not in colours)


def test_areas_and_bars_of_queues_have_patterns(pages):
    (gantt, *_) = [figure for key, figure in data(pages["simulation"])["figures"].items() if "gantt" in key]
    assert len({trace["marker"]["pattern"]["shape"] for trace in gantt["data"]}) == len(gantt["data"]) > 1
    shares = data(pages["sweep"])["figures"]["shares-0-0"]["data"]
    assert len({trace["fillpattern"]["shape"] for trace in shares}) == 2


def test_every_policy_has_a_bar_with_its_own_colour_and_text(pages):
    figure = data(pages["simulation"])["figures"]["bars-meanwait"]
    bars = [trace for trace in figure["data"] if trace["type"] == "bar"]
    texts = [trace["text"][0] for trace in figure["data"] if trace["type"] == "scatter"]
    assert len({bar["marker"]["color"] for bar in bars}) == len(texts) == 2


def test_a_name_with_markup_is_escaped(simulated):
    name = "</script><script>document.title='x'</script>"
    result = simulated[0].result
    gangs = (replace(result.gangs[0], key=name), *result.gangs[1:])
    hostile = replace(simulated[0], result=replace(result, policy=name, gangs=gangs))
    page = render_simulation_report(name, [hostile], NODES)
    assert name not in page
    assert data(page)["figures"]["queue-length"]["data"][0]["name"] == name


def test_a_run_without_gangs_makes_a_page():
    empty = RunResult("nothing", "a", (), ClusterSeries((), {}, {}, (), ()), sessions=0)
    assert "0 nodes" in render_simulation_report("nothing", [build_outcome(empty, (), 0)], ())


def test_a_cluster_is_described_in_a_line():
    assert describe_cluster(runs.cluster(1)) == "1 node, 8 GPUs, 96 CPUs, 768 GiB memory"


def test_several_workloads_have_tables_and_figures_of_their_own(swept):
    other = [outcome.with_workload_and_policy_names("second", outcome.policy) for outcome in swept]
    both = render_sweep_report("small", [*swept, *other])
    assert ">drawn</h2>" in both
    assert ">second</h2>" in both
    assert {"fairness-error-0", "fairness-error-1"} <= set(data(both)["figures"])


def test_one_policy_and_one_seed_have_no_interval(swept):
    assert "±" not in json.dumps(data(render_sweep_report("small", swept[:1]))["figures"])


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
        assert plots(page) == page.locator("figure:not([hidden])").count()
        assert page.evaluate("document.documentElement.scrollWidth") <= width

        before = visible_traces(page, key)
        page.click("[data-policy] >> nth=0")
        page.wait_for_selector("html[data-drawn=dark]", timeout=120_000)
        assert visible_traces(page, key) == before - 1
        page.click("[data-show] >> nth=1")
        page.wait_for_selector("html[data-drawn=dark]", timeout=120_000)
        assert plots(page) > page.locator("figure:not([hidden])").count() - 1
        titles = page.locator(".modebar-btn").evaluate_all(
            "all => all.map(one => one.dataset.title ?? one.title)"
        )
        assert [title for title in titles if "hare" in title or "loud" in title] == []

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


def visible_traces(page, key):
    """How many lines or bars of a plot are not hidden."""
    return page.evaluate(f"document.getElementById('{key}').data.filter(one => one.visible !== false).length")


def plots(page):
    """How many plots have something in them."""
    return page.evaluate("document.querySelectorAll('.plot .main-svg:first-of-type').length")
