import gzip
import hashlib
import json
from pathlib import Path

import msgspec
import pytest

from batchsched.record.file import read_session_file
from tests.cli.conftest import NOW
from tests.hash_seeds import outputs_by_hash_seed

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def session(command, tmp_path):
    file = tmp_path / "session.json.gz"
    result = command("record", EXAMPLES, "--to", file, "--now", NOW, "--seed", "3")
    assert result.code == 0
    assert result.out == ""
    assert f"recorded in {file}" in result.err
    return file


def rewritten(file, change):
    """Change a session file and keep its digest."""
    content = json.loads(gzip.decompress(file.read_bytes()))
    change(content["session"])
    file.write_bytes(gzip.compress(json.dumps(content).encode()))


def sealed_anew(file, change):
    """Change a session file and give it the digest of what it holds now."""
    content = json.loads(gzip.decompress(file.read_bytes()))
    change(content["session"])
    body = msgspec.json.encode(content["session"], order="sorted")
    content["digest"] = f"sha256:{hashlib.sha256(body).hexdigest()}"
    file.write_bytes(gzip.compress(json.dumps(content).encode()))


def test_recorded_session_repeats(command, session):
    result = command("replay", session)
    assert result.code == 0
    assert "the decision repeats, byte for byte" in result.out


def test_recorded_session_repeats_in_a_process_with_another_hash_seed(session):
    for output in outputs_by_hash_seed(
        "import batchsched.cli; batchsched.cli.main()", "replay", str(session)
    ):
        assert "the decision repeats, byte for byte" in output


def test_decide_records_the_session_that_it_prints(command, tmp_path):
    file = tmp_path / "session.json.gz"
    decided = command("decide", EXAMPLES, "--now", NOW, "--record", file, "-o", "json")
    replayed = command("replay", file, "-o", "json")
    assert replayed.code == 0
    assert replayed.data["assignments"] == decided.data["assignments"]


def test_two_recordings_of_one_input_have_the_same_bytes(command, session, tmp_path):
    again = tmp_path / "again.json.gz"
    assert command("record", EXAMPLES, "--to", again, "--now", NOW, "--seed", "3").code == 0
    assert again.read_bytes() == session.read_bytes()


@pytest.mark.parametrize("options, seed", [((), 3), (("--seed", "0"), 0), (("--seed", "5"), 5)])
def test_a_stated_seed_takes_precedence_over_that_of_a_recorded_session(
    command, session, tmp_path, options, seed
):
    again = tmp_path / "again.json.gz"
    assert command("record", session, "--to", again, *options).code == 0
    assert read_session_file(again).seed == seed


def test_replaced_session_is_mentioned(command, session):
    replaced = command("record", EXAMPLES, "--to", session, "--now", NOW)
    assert (replaced.code, "which replaces an earlier file" in replaced.err) == (0, True)


@pytest.mark.parametrize("option", [("record", "--to"), ("decide", "--record")], ids=" ".join)
def test_file_that_is_no_recording_is_not_overwritten(command, cluster, option):
    name, flag = option
    before = cluster.read_text()
    result = command(name, cluster, flag, cluster, "--now", NOW)
    assert result.code == 2
    assert f"{flag}: '{cluster}' exists, and is neither a dump nor a recorded session" in result.err
    assert cluster.read_text() == before


def test_tampered_session_is_refused(command, session):
    rewritten(session, lambda content: content.update(seed=4))
    result = command("replay", session)
    assert result.code == 1
    assert "does not match its digest" in result.err


def test_replay_that_differs_names_the_differences(command, session):
    def change(content):
        moved = content["decision"]["assignments"][0]
        moved["node"] = "gpu-99"
        del content["decision"]["refusals"][0]

    sealed_anew(session, change)
    result = command("replay", session)
    assert result.code == 4
    assert "the decision differs in 2 places" in result.out
    assert "assignments: product/evaluation\n  - node: gpu-99\n  + node: gpu-" in result.out
    assert "refusals: product/ranking\n  + reason: " in result.out


def test_session_of_another_version_causes_a_warning(command, session):
    sealed_anew(session, lambda content: content.update(batchsched="0.0.1"))
    result = command("replay", session)
    assert result.code == 0
    assert "recorded by batchsched 0.0.1" in result.err


def test_session_ended_by_the_guard_causes_a_warning(command, session):
    sealed_anew(session, lambda content: content["decision"]["solver"].update(guard=True))
    result = command("replay", session)
    assert result.code == 4
    assert "solver.guard\n  - True\n  + False" in result.out
    assert "the wall-clock guard fired" in result.err


@pytest.mark.parametrize(
    "content",
    [b"junk", gzip.compress(b"{}", mtime=0), gzip.compress(b"junk", mtime=0)],
    ids=["junk", "an empty object", "packed junk"],
)
def test_file_that_is_no_session_is_refused(command, tmp_path, content):
    (tmp_path / "session").write_bytes(content)
    result = command("replay", tmp_path / "session")
    assert result.code == 1
    assert "is not a recorded session" in result.err
