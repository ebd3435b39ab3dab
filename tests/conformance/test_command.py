"""`make conformance` says of every area how much differs, and fails when anything does."""

import io
import json

import pytest

from batchsched.config.kubernetes_release import DEFAULT_VERSION
from tests.conformance import runner
from tests.conformance.__main__ import main, recorded_version


def run(folder):
    out = io.StringIO()
    return main([str(folder)], out), out.getvalue()


@pytest.fixture
def three(tmp_path):
    """A plain file of three cases, as JSON to be tampered with."""
    cases = json.loads(runner.content(runner.CASES / "preemption.json.gz"))[:3]

    def write():
        (tmp_path / "few.json").write_text(json.dumps(cases))
        return tmp_path

    return cases, write


def test_a_plain_file_that_agrees_is_one_line_and_success(three):
    _, write = three
    assert run(write()) == (0, "few: 3 cases, 0 mismatches\n")


@pytest.mark.parametrize(
    "area, path, value",
    [
        ("preemption", "fitError", "nothing"),
        ("preemption", "fitErrorFull", "nothing"),
        ("preemption", "nodeStatus", {}),
        ("preemption", "feasible", ["n0"]),
        ("preemption", "preemption nominatedNode", "n0"),
        ("preemption", "preemption victims", ["a/b"]),
        ("preemption", "preemption candidates", {}),
        ("preemption", "preemption rejected", {"n9": {"code": "x"}}),
        ("taints", "weights", {}),
        ("taints", "total", [1]),
        ("taints", "best", ["n99"]),
    ],
)
def test_a_changed_answer_is_a_mismatch_that_is_shown(tmp_path, area, path, value):
    (case,) = json.loads(runner.content(runner.CASES / f"{area}.json.gz"))[:1]
    *places, field = path.split()
    stated = case["expected"]
    for place in places:
        stated = stated[place]
    stated[field] = value
    (tmp_path / "few.json").write_text(json.dumps([case]))
    code, text = run(tmp_path)
    assert code == 1
    assert text.startswith(f"few: 1 cases, 1 mismatches; first: {case['name']} ")


def test_any_of_the_tied_nodes_is_right(three):
    cases, write = three
    stated = cases[0]["expected"]["preemption"]
    stated["tied"] = ["n0", stated["nominatedNode"]]
    stated["nominatedNode"], stated["victims"] = "n0", ["default/other"]
    assert run(write())[0] == 0


def test_a_folder_without_cases_is_no_success(tmp_path, capsys):
    assert run(tmp_path) == (2, "")
    assert "no cases found" in capsys.readouterr().err


@pytest.mark.parametrize("version", runner.RECORDINGS)
def test_the_release_of_a_recording_follows_from_its_answers(version):
    assert recorded_version(runner.RECORDINGS[version]) == version


def test_a_folder_without_cases_counts_as_the_default_release(tmp_path):
    assert recorded_version(tmp_path) == DEFAULT_VERSION
