import contextlib
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from batchsched.api.decision import (
    Assignment,
    Decision,
    Refusal,
    Reservation,
    SetAside,
    SolverAccount,
    TierObjective,
)
from batchsched.api.snapshot import HeldGang, HeldGangPod, PastQueueUsage, Snapshot
from batchsched.config.schema import Profile
from batchsched.errors import DigestMismatch, InvalidInput
from batchsched.manifests import reader
from batchsched.record.file import (
    DecisionDifference,
    SessionRecord,
    compare_decisions,
    read_session_file,
    write_session_file,
)
from tests.manifests.snapshots import SNAPSHOTS

DECISION = Decision(
    assignments=(Assignment(namespace="a", pod="p", node="n"),),
    solver=SolverAccount(
        tiers=(TierObjective(share="all", priority=0, objective=0.1, bound=1e-05),), seconds=1.5
    ),
)
HELD = HeldGang(pod_group="a/g", plugin="Quota", until=1e9, pods=(HeldGangPod(pod="a/p", node="n"),))


def record(snapshot=None, **fields):
    given_fields = {
        "profile": Profile(session_window=7),
        "now": 1767603600.25,
        "seed": 3,
        "decision": DECISION,
    }
    return SessionRecord(snapshot=snapshot or Snapshot(), **{**given_fields, **fields})


@given(snapshot=SNAPSHOTS, now=st.floats(0, 4e9), seed=st.integers(0, 2**62))
def test_session_survives_its_file(tmp_path_factory, snapshot, now, seed):
    path = tmp_path_factory.mktemp("record") / "session"
    kept = record(snapshot, now=now, seed=seed)
    write_session_file(path, kept)
    assert read_session_file(path) == kept


def test_held_gangs_resting_gangs_and_set_aside_objects_are_kept(tmp_path):
    aside = SetAside(file="f", object="Pod a/p", field="spec", message="m")
    usage = (PastQueueUsage("team", "cpu", 1234.5),)
    kept = record(
        Snapshot(
            held=(HELD,),
            resting=("team/bert", "pod/team/x"),
            rejected=("team/bert",),
            usage=usage,
            reservations=(Reservation(pod_group="team/head", start="2026-01-01T00:00:00Z"),),
            refused_evictions=("team/low",),
            chosen_policy="saf",
            set_aside=(aside,),
        )
    )
    write_session_file(tmp_path / "session", kept)
    assert read_session_file(tmp_path / "session").snapshot == kept.snapshot


def test_equal_sessions_make_equal_files(tmp_path):
    assert write_session_file(tmp_path / "a", record()) == write_session_file(tmp_path / "b", record())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_layout_of_the_file_does_not_matter(tmp_path):
    import json

    write_session_file(tmp_path / "a", record())
    content = json.loads(gzip.decompress((tmp_path / "a").read_bytes()))
    (tmp_path / "b").write_bytes(gzip.compress(json.dumps(content, indent=2).encode()))
    assert read_session_file(tmp_path / "b") == record()


@pytest.mark.parametrize(
    "old, new",
    [
        (b'"seed":3', b'"seed":4'),
        (b'"pod":"p"', b'"pod":"q"'),
        (b'"sessionWindow":7', b'"sessionWindow":8'),
        (b'"now":1', b'"now":2'),
    ],
)
def test_session_that_was_changed_is_refused(tmp_path, old, new):
    path = tmp_path / "session"
    write_session_file(path, record())
    content = gzip.decompress(path.read_bytes())
    assert old in content
    path.write_bytes(gzip.compress(content.replace(old, new)))
    with pytest.raises(DigestMismatch, match="does not match its digest"):
        read_session_file(path)


@pytest.mark.parametrize("old", [b'"pod":"p"', b'"digest":"sha256', b'"format":"batch'])
def test_session_with_bytes_that_are_not_utf_8_is_unusable_input(tmp_path, old):
    path = tmp_path / "session"
    write_session_file(path, record())
    content = gzip.decompress(path.read_bytes())
    assert old in content
    path.write_bytes(gzip.compress(content.replace(old, old[:-1] + b"\xff")))
    with pytest.raises(InvalidInput, match="is not a recorded session"):
        read_session_file(path)


def test_session_that_decompresses_to_more_than_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "MAX_TEXT_BYTES", 2**20)
    path = tmp_path / "session"
    path.write_bytes(gzip.compress(b" " * 2**21))
    with pytest.raises(InvalidInput, match="of text, which is the limit"):
        read_session_file(path)


@pytest.mark.properties
@pytest.mark.parametrize("layer", ["compressed", "text"])
@given(position=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_session_with_a_flipped_bit_is_refused_or_unchanged(tmp_path_factory, layer, position, bit):
    path = tmp_path_factory.mktemp("flipped") / "session"
    write_session_file(path, record())
    content = bytearray(path.read_bytes())
    if layer == "text":
        content = bytearray(gzip.decompress(content))
    content[int(position * len(content))] ^= 1 << bit
    path.write_bytes(bytes(content) if layer == "compressed" else gzip.compress(bytes(content)))
    with contextlib.suppress(InvalidInput, DigestMismatch):
        assert read_session_file(path) == record()


@given(kept=st.floats(0, 1, exclude_max=True))
def test_session_that_was_cut_anywhere_is_refused(tmp_path_factory, kept):
    path = tmp_path_factory.mktemp("cut") / "session"
    write_session_file(path, record())
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(InvalidInput):
        read_session_file(path)


def test_session_that_was_cut_off_is_refused(tmp_path):
    path = tmp_path / "session"
    write_session_file(path, record())
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidInput, match="damaged"):
        read_session_file(path)


def test_session_of_another_format_is_refused(tmp_path):
    import hashlib
    import json

    body = b'{"format":"batchsched.session/9"}'
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    content = json.dumps({"digest": digest, "session": json.loads(body)})
    (tmp_path / "session").write_bytes(gzip.compress(content.encode()))
    with pytest.raises(InvalidInput, match=r"expected the format batchsched\.session/1"):
        read_session_file(tmp_path / "session")


def test_place_that_cannot_be_written_or_read_is_named(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be written"):
        write_session_file(tmp_path / "none" / "session", record())
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_session_file(tmp_path / "none")


def assigned(**nodes):
    return tuple(Assignment(namespace="a", pod=pod, node=node) for pod, node in nodes.items())


def test_equal_decisions_do_not_differ_whatever_their_timings():
    slow = Decision(assignments=assigned(p="n"), solver=SolverAccount(seconds=9.0, stages={"cpsat": 8.0}))
    assert compare_decisions(slow, replace(slow, solver=SolverAccount())) == ()


def test_moved_pod_is_named_with_both_nodes():
    found = compare_decisions(
        Decision(assignments=assigned(p="n1", q="n2")), Decision(assignments=assigned(p="n1", q="n3"))
    )
    assert found == (DecisionDifference("assignments: a/q", "node: n2", "node: n3"),)


def test_item_on_one_side_only_is_named():
    refusal = Refusal(pod_group="a/g", reason="NoNodes", message="m", missing={"cpu": 1})
    assert compare_decisions(Decision(refusals=(refusal,)), Decision()) == (
        DecisionDifference(
            "refusals: a/g",
            "reason: NoNodes, message: m, missing: cpu: 1, startable: True, verified: False",
            "",
        ),
    )


def test_account_is_compared_field_by_field():
    found = compare_decisions(Decision(), Decision(solver=SolverAccount(gap=0.5, guard=True)))
    assert [one.place for one in found] == ["solver.gap", "solver.guard"]


def test_several_items_of_one_name_are_compared_together():
    aside = SetAside(file="f", object="Pod a/p", field="spec", message="one")
    found = compare_decisions(
        Decision(set_aside=(aside, replace(aside, message="two"))), Decision(set_aside=(aside,))
    )
    assert found == (
        DecisionDifference("setAside: f/Pod a/p/spec", "message: one; message: two", "message: one"),
    )


def test_order_alone_is_a_difference():
    pods = assigned(p="n1", q="n2")
    (only,) = compare_decisions(Decision(assignments=pods), Decision(assignments=pods[::-1]))
    assert only.place == "the order of items"
