"""A small fixed draw, asked of kube-scheduler's own plugins; and what says that something differs."""

import io
import json
import os

import pytest

from batchsched.config.kubernetes_release import RELEASES
from tests.conformance import oracle
from tests.conformance.draw import AREAS, case
from tests.controlplane import build

COUNT = "1000" if os.environ.get("HYPOTHESIS_PROFILE") == "full" else "60"
"""Cases for each release: `make test-full` compares more."""
needs_oracle = pytest.mark.skipif(
    any(build.find("oracle", version) is None for version in RELEASES) and not build.required(),
    reason="`make controlplane` builds it",
)


def test_a_case_follows_from_its_seed_and_its_areas():
    assert case(7) == case(7)
    assert case(7, ("spread",)) == case(7, ("spread",))
    assert case(7) != case(8)


@pytest.mark.parametrize("area", sorted(AREAS))
def test_every_area_draws_what_an_api_server_could_store(area):
    drawn = case(3, (area,))
    assert json.loads(json.dumps(drawn)) == drawn
    assert drawn["note"] == area


@needs_oracle
@pytest.mark.parametrize("version", RELEASES)
def test_kube_scheduler_gives_the_same_answers_for_random_cases(tmp_path, version):
    out = io.StringIO()
    arguments = ["--kubernetes-version", version, "--count", COUNT, "--keep", str(tmp_path)]
    assert (oracle.main(arguments, out), list(tmp_path.iterdir())) == (0, []), out.getvalue()


@needs_oracle
@pytest.mark.parametrize("version", RELEASES)
def test_kube_scheduler_gives_the_same_answers_for_random_claims_to_devices(tmp_path, version):
    out = io.StringIO()
    asked = ["--kubernetes-version", version, "--areas", "devices", "--count", COUNT, "--keep", str(tmp_path)]
    assert (oracle.main(asked, out), list(tmp_path.iterdir())) == (0, []), out.getvalue()


@needs_oracle
@pytest.mark.parametrize("areas", ["", "devices"], ids=["any", "devices"])
@pytest.mark.parametrize("version", RELEASES)
def test_kube_scheduler_gives_the_same_answers_for_several_pending_pods(version, areas):
    out = io.StringIO()
    arguments = ["--kubernetes-version", version, "--several", "--count", "8", "--areas", areas]
    assert oracle.main(arguments, out) == 0, out.getvalue()


@needs_oracle
def test_differences_are_named_and_stored_as_a_case(tmp_path, monkeypatch):
    def doubting(cases, version):
        return [{**one, "total": [0] * len(one.get("total", ()))} for one in asked(cases, version)]

    asked = oracle.answers
    monkeypatch.setattr(oracle, "answers", doubting)
    out = io.StringIO()
    assert (
        oracle.main(["--count", "1", "--seed", "2", "--areas", "images", "--keep", str(tmp_path)], out) == 1
    )
    assert "[images] drawn-2 total: ours" in out.getvalue()
    assert json.loads((tmp_path / "drawn-2-incoming.json").read_text())[0]["expected"]["total"][0] == 0
