"""`make conformance` says of every area how much differs, and fails when anything does."""

import io
import json
import shutil

import pytest

from tests.conformance import runner
from tests.conformance.command import main


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
    "field, value",
    [("fitError", "nothing"), ("fitErrorFull", "nothing"), ("nodeStatus", {}), ("feasible", ["n0"])],
)
def test_a_changed_answer_is_a_mismatch_that_is_shown(three, field, value):
    cases, write = three
    cases[1]["expected"][field] = value
    code, text = run(write())
    assert code == 1
    assert text.startswith(f"few: 3 cases, 1 mismatches; first: {cases[1]['name']} ")


@pytest.mark.parametrize(
    "field, value",
    [("nominatedNode", "n0"), ("victims", ["a/b"]), ("candidates", {}), ("rejected", {"n9": {"code": "x"}})],
)
def test_a_changed_preemption_is_a_mismatch(three, field, value):
    cases, write = three
    cases[0]["expected"]["preemption"][field] = value
    assert run(write())[0] == 1


@pytest.mark.parametrize("field, value", [("weights", {}), ("total", [1]), ("best", ["n99"])])
def test_a_changed_score_is_a_mismatch(tmp_path, field, value):
    cases = json.loads(runner.content(runner.CASES / "taints.json.gz"))[:1]
    cases[0]["expected"][field] = value
    (tmp_path / "taints.json").write_text(json.dumps(cases))
    assert run(tmp_path)[0] == 1


def test_any_of_the_tied_nodes_is_right(three):
    cases, write = three
    stated = cases[0]["expected"]["preemption"]
    stated["tied"] = ["n0", stated["nominatedNode"]]
    stated["nominatedNode"], stated["victims"] = "n0", ["default/other"]
    assert run(write())[0] == 0


def test_an_area_that_is_not_built_is_named_and_not_counted(three):
    _, write = three
    shutil.copy(write() / "few.json", write() / "dra.json")
    assert run(write())[1].splitlines() == ["dra: not built", "few: 3 cases, 0 mismatches"]


def test_a_folder_without_cases_is_no_success(tmp_path, capsys):
    assert run(tmp_path) == (2, "")
    assert "no cases found" in capsys.readouterr().err
