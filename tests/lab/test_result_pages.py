"""A folder of results as pages, which follow what the folder holds."""

import html
import json
import shutil

import pytest

from batchsched.errors import InvalidInput
from batchsched.lab import result_pages, results
from batchsched.lab.plan import plan_runs
from batchsched.lab.result_pages import ResultPages
from batchsched.lab.results import execute_missing_runs, result_path, write_run_plan
from batchsched.lab.workers import InProcessWorkers
from tests.lab.scenarios import scenario


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with all four runs."""
    folder = tmp_path_factory.mktemp("made")
    runs = plan_runs(scenario())
    write_run_plan(folder, scenario(), runs)
    execute_missing_runs(runs, folder, InProcessWorkers())
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "results")


@pytest.fixture
def read(monkeypatch):
    """The files that were read."""
    found = []

    def read_outcome(path):
        found.append(path.name)
        return results.read_outcome(path)

    monkeypatch.setattr(result_pages, "read_outcome", read_outcome)
    return found


def test_the_page_lists_every_run_with_its_figures_and_its_file(folder):
    page = ResultPages(folder).runs_html()
    assert "small: 4 of 4 runs finished" in page
    for run in plan_runs(scenario()):
        assert f'href="/runs/{run.result_key}.parquet"' in page
    assert "Mean wait" in page
    assert "Gangs not finished" not in page
    assert 'id="reload"' not in page


def test_policies_with_equal_settings_have_files_of_their_own_and_make_no_report_partial(tmp_path):
    policies = [{"name": name, "profile": {"policy": {"name": "fcfs"}}} for name in ("one", "two")]
    made = scenario(policies=policies, seeds=1)
    write_run_plan(tmp_path, made, plan_runs(made))
    assert execute_missing_runs(plan_runs(made), tmp_path, InProcessWorkers()) == 1
    shown = ResultPages(tmp_path)
    key = plan_runs(made)[0].result_key
    page = shown.runs_html()
    assert "2 of 2 runs finished" in page
    for name in (f"{key}.parquet", f"{key}-2.parquet"):
        assert f'href="/runs/{name}"' in page
        assert shown.result_file_path(name) == tmp_path / "runs" / name
    result_path(tmp_path, key).unlink()
    assert "This report is partial: 1 of 2 runs have finished" in ResultPages(tmp_path).report_html()


def test_a_narrow_list_of_runs_states_the_column_of_each_cell(folder):
    page = ResultPages(folder).runs_html()
    assert "@media (max-width: 720px)" in page
    assert page.count('data-column="Mean wait"') == 4


def test_the_list_of_runs_allows_only_its_own_script(folder):
    page = ResultPages(folder).runs_html()
    assert "default-src 'none'" in html.unescape(page).replace("&#39;", "'")
    assert 'http-equiv="Content-Security-Policy"' in page


def test_the_report_states_the_command_that_the_plan_records(folder):
    write_run_plan(folder, scenario(), plan_runs(scenario()), "batchsched lab run small.yaml")
    assert "<code>batchsched lab run small.yaml</code>" in ResultPages(folder).report_html()


def test_the_report_and_the_list_of_runs_link_to_each_other(folder):
    assert '<a href="/runs">' in ResultPages(folder).report_html()
    assert '<a href="/">' in ResultPages(folder).runs_html()


def test_a_finished_run_is_in_the_next_response(folder, made, read):
    last = result_path(folder, plan_runs(scenario())[3].result_key)
    last.unlink()
    shown = ResultPages(folder)
    before = shown.report_html()
    page = shown.runs_html()
    assert "3 of 4 runs finished" in page
    assert "not finished" in page
    assert 'id="reload"' in page  # a check box that stops the reload
    assert 'http-equiv="refresh"' not in page
    assert "This report is partial: 3 of 4 runs have finished" in before
    assert len(read) == 3
    shutil.copy(result_path(made, plan_runs(scenario())[3].result_key), last)
    assert "4 of 4 runs finished" in shown.runs_html()
    assert shown.report_html() != before
    assert read[3:] == [last.name]


def test_an_unchanged_report_is_not_rendered_again(folder, monkeypatch):
    shown = ResultPages(folder)
    first = shown.report_html()
    monkeypatch.setattr(result_pages, "render_sweep_report", lambda *_: pytest.fail("made again"))
    assert shown.report_html() is first


def test_a_folder_without_results_is_refused_with_what_is_missing(tmp_path):
    with pytest.raises(InvalidInput, match="a folder that `lab run` wrote"):
        ResultPages(tmp_path).runs_html()
    write_run_plan(tmp_path, scenario(), plan_runs(scenario()))
    for ask in (ResultPages(tmp_path).runs_html, ResultPages(tmp_path).report_html):
        with pytest.raises(InvalidInput, match="none of its 4 runs has finished"):
            ask()


def test_a_run_is_found_by_the_name_of_its_file_only(folder):
    shown = ResultPages(folder)
    key = plan_runs(scenario())[0].result_key
    assert shown.result_file_path(f"{key}.parquet") == result_path(folder, key)
    for name in (key, "absent.parquet", "../plan.json", f"../runs/{key}.parquet", "", ".", ".."):
        assert shown.result_file_path(name) is None


def test_a_plan_with_paths_outside_the_folder_opens_no_file(folder, tmp_path):
    shutil.copy(next(folder.glob("runs/*.parquet")), tmp_path / "secret.parquet")
    (folder / "runs/link.parquet").symlink_to(tmp_path / "secret.parquet")
    told = json.loads((folder / "plan.json").read_text())
    told["runs"] += [{**told["runs"][0], "key": key} for key in ("../../secret", "link")]
    (folder / "plan.json").write_text(json.dumps(told))
    for name in ("../../secret.parquet", "secret.parquet", "link.parquet"):
        assert ResultPages(folder).result_file_path(name) is None


def test_names_are_text_and_never_markup(folder):
    told = json.loads((folder / "plan.json").read_text())
    told["runs"][0]["policy"] = "<script>alert(1)</script>"
    (folder / "plan.json").write_text(json.dumps(told))
    assert "<script>" not in ResultPages(folder).runs_html()
