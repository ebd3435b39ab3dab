"""Extenders in a session: refusals, scores, faults, and a replay without extenders."""

import subprocess
import sys
import time
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from batchsched.api.core.metadata import ObjectMeta
from batchsched.errors import InvalidInput
from batchsched.record.file import SessionRecord, compare_decisions, read_session_file, write_session_file
from batchsched.runner.session_runner import SessionRunner
from batchsched.session.session import decide
from tests.extender_server import extender, keeping, names_of
from tests.session.scenario import NOW, alone, cluster, gang, node, nodes, placed, pod, profile, reasons
from tests.session.test_permit import WAYS

SHARE = "example.com/gpu-share"
CLUSTER = cluster(nodes(4), gang("bert", 2, requests={"cpu": 1}), alone(1, cpu=1))


def stated(url, **more):
    return {"urlPrefix": url, "filterVerb": "filter", "nodeCacheCapable": True, **more}


def decided(snapshot, *extenders, **settings):
    """Decide with extenders over the network, and again from what was recorded: the same comes out."""
    meeting = SessionRunner(profile(extenders=extenders, **settings))
    decision = meeting.decide_from_snapshot(snapshot, NOW, 0)
    chosen = profile(extenders=extenders, **settings)
    again = decide(snapshot, chosen, NOW, 0, outside=meeting.answers.create_replay_clients())
    assert again == decision
    return decision


def told(decision):
    return [(one.object, one.message) for one in decision.set_aside]


@pytest.mark.parametrize("settings", WAYS)
@pytest.mark.parametrize("by_name", [True, False])
def test_pods_go_where_extenders_leave_them(settings, by_name):
    with extender(filter=keeping("n2", "n3"), later=keeping("n1", "n2")) as server:
        decision = decided(
            CLUSTER,
            stated(server.url, nodeCacheCapable=by_name),
            stated(server.url + "/", filterVerb="later", nodeCacheCapable=by_name),
            **settings,
        )
    assert set(placed(decision).values()) == {"n2"}
    assert len(placed(decision)) == 3
    asked = [names_of(question) for verb, question in server.asked if verb == "later"]
    assert asked == [["n2", "n3"]] * len(asked)


@pytest.mark.parametrize("settings", WAYS)
def test_scores_of_extenders_are_added_in_their_scale(settings):
    def liking(name):
        return lambda question: [
            {"Host": one, "Score": 10 if one == name else 0} for one in (*names_of(question), "atlantis")
        ]

    with extender(first=liking("n1"), second=liking("n3")) as server:
        decision = decided(
            cluster(nodes(4), alone(1, cpu=1)),
            stated(server.url, filterVerb="", prioritizeVerb="first", weight=1),
            stated(server.url, filterVerb="", prioritizeVerb="second", weight=5),
            **settings,
        )
    assert placed(decision) == {"solo-0": "n3"}
    assert server.verbs() == ["first", "second"]


@pytest.mark.parametrize("settings", WAYS)
def test_extender_receives_each_pod_that_differs(settings):
    one, other = (pod(name, labels={"tier": name}, cpu=1) for name in ("one", "other"))
    with extender(
        filter=lambda question: {"NodeNames": ["n1" if "one" in str(question["Pod"]) else "n0"]}
    ) as it:
        decision = decided(cluster(nodes(2), pods=(one, other)), stated(it.url), **settings)
    assert placed(decision) == {"one": "n1", "other": "n0"}
    assert [q["Pod"]["metadata"]["name"] for _, q in it.asked] in (["one", "other"], ["other", "one"])


def test_reasons_of_extenders_are_in_the_message():
    answer = {
        "nodenames": [],
        "failedNodes": {"n0": "too hot", "n1": "too hot"},
        "failedAndUnresolvableNodes": {"n1": "on fire", "n2": "on fire"},
    }
    with extender(filter=answer) as server:
        decision = decided(cluster(nodes(4), alone(1, cpu=1)), stated(server.url), solver={"enabled": False})
        url = server.url
    assert decision.refusals[0].message.startswith(
        f"0/4 nodes are available: 1 extender {url} left the node out, 1 too hot, 2 on fire."
    )


def test_other_nodes_are_evaluated_if_an_extender_refuses_the_nominated_one():
    # schedule_one.go, `evaluateNominatedNode`: extenders are asked about that node alone, then about all that fit.
    one = pod("mine", cpu=1)
    status = msgspec.structs.replace(one.status, nominated_node_name="n1")
    with extender(filter=keeping("n2")) as server:
        wish = msgspec.structs.replace(one, status=status)
        decision = decided(cluster(nodes(3), pods=(wish,)), stated(server.url), solver={"enabled": False})
    assert placed(decision) == {"mine": "n2"}
    assert [names_of(question) for _, question in server.asked] == [["n1"], ["n0", "n1", "n2"]]


@pytest.mark.parametrize("settings", WAYS)
def test_pod_without_a_managed_resource_is_not_sent_to_the_extender(settings):
    both = (pod("plain", cpu=1), pod("shared", **cast(Any, {SHARE: 2})))
    with extender(filter=keeping("n1")) as server:
        managed = stated(server.url, managedResources=[{"name": SHARE, "ignoredByScheduler": True}])
        decision = decided(cluster((node("n0"), node("n1")), pods=both), managed, **settings)
    assert placed(decision)["shared"] == "n1"
    assert "plain" in placed(decision)
    assert [q["Pod"]["metadata"]["name"] for _, q in server.asked] == ["shared"]


@pytest.mark.parametrize("settings", WAYS)
def test_resource_that_is_not_left_to_an_extender_is_counted(settings):
    wish = pod("shared", **cast(Any, {SHARE: 2}))
    with extender(filter=keeping("n0", "n1")) as server:
        managed = stated(server.url, managedResources=[{"name": SHARE}])
        decision = decided(cluster(nodes(2), pods=(wish,)), managed, **settings)
    assert placed(decision) == {}


def slow(question):
    time.sleep(0.2)
    return {"NodeNames": names_of(question)}


def hanging(question):
    time.sleep(1.0)
    return {"NodeNames": names_of(question)}


def patience(answer):
    """How long to wait for an answer: only one that hangs may be too late, however slow the machine."""
    return "200ms" if answer is hanging else "30s"


FAULTS = [
    ("time-out", hanging, "gave no answer within 0.2 s (httpTimeout)"),
    ("status", 500, "answered filter with status 500"),
    ("garbage", b"{]", "is no answer: is not JSON: "),
    ("bytes", b"\xff\xfe", "is no answer: "),
    ("nothing", b"", "is no answer: "),
    ("list", [1, 2], "is no answer: expected a mapping, found a list"),
    ("number", {"NodeNames": 7}, "is no answer: expected a list, found a whole number"),
    ("unknown node", {"NodeNames": ["atlantis"]}, "named the node 'atlantis', which it was not asked about"),
    ("its own error", {"Error": "no quota"}, "no quota"),
]


@pytest.mark.parametrize("settings", WAYS)
@pytest.mark.parametrize("answer, message", [one[1:] for one in FAULTS], ids=[one[0] for one in FAULTS])
def test_fault_of_an_extender_fails_the_pods_of_the_request(answer, message, settings):
    wish = pod("shared", **cast(Any, {SHARE: 1}))
    with extender(filter=answer) as server:
        faulty = stated(server.url, httpTimeout=patience(answer), managedResources=[{"name": SHARE}])
        decision = decided(cluster(nodes(2, **{SHARE: 4}), alone(2, cpu=1), pods=(wish,)), faulty, **settings)
        url = server.url
    assert set(placed(decision)) == {"solo-0", "solo-1"}
    assert reasons(decision) == {"team/shared": "PluginFailed"}
    assert decision.refusals[0].message.startswith(f"extender {url} failed in Filter: {message}")
    assert told(decision) == []


@pytest.mark.parametrize("settings", WAYS)
@pytest.mark.parametrize("answer, message", [one[1:] for one in FAULTS], ids=[one[0] for one in FAULTS])
def test_fault_of_an_ignorable_extender_is_reported_and_refuses_no_pod(answer, message, settings):
    with extender(filter=answer) as server:
        faulty = stated(server.url, httpTimeout=patience(answer), ignorable=True)
        decision = decided(CLUSTER, faulty, **settings)
        url = server.url
    assert len(placed(decision)) == 3
    assert {name for name, _ in told(decision)} == {f"extender {url}"}
    assert told(decision)[0][1].startswith(f"Filter: {message}")
    assert told(decision)[0][1].endswith("; the session continued without it")


@pytest.mark.parametrize("settings", WAYS)
def test_connection_that_is_refused_fails_the_pods(settings):
    with extender() as server:
        gone = server.url
    decision = decided(CLUSTER, stated(gone), **settings)
    assert placed(decision) == {}
    assert "cannot be reached: Connection refused" in decision.refusals[0].message


@pytest.mark.parametrize("settings", WAYS)
def test_slow_answer_within_the_time_is_an_answer(settings):
    with extender(filter=slow) as server:
        decision = decided(
            cluster(nodes(2), alone(1, cpu=1)), stated(server.url, httpTimeout="5s"), **settings
        )
    assert len(placed(decision)) == 1


@pytest.mark.parametrize("settings", WAYS)
@pytest.mark.parametrize("answer", [500, b"[", [{"Host": "n0", "Score": 2**40}], {"Host": "n0"}])
def test_fault_of_prioritize_is_reported_and_refuses_no_pod(answer, settings):
    with extender(prioritize=answer) as server:
        wishing = stated(server.url, filterVerb="", prioritizeVerb="prioritize", weight=1)
        decision = decided(CLUSTER, wishing, **settings)
    assert len(placed(decision)) == 3
    assert told(decision)[0][1].startswith("Score: ")


def test_ignorable_extenders_are_called_last():
    with extender(a=keeping("n0", "n1"), b=keeping("n0")) as server:
        decided(
            cluster(nodes(2), alone(1, cpu=1)),
            stated(server.url, filterVerb="a", ignorable=True),
            stated(server.url, filterVerb="b"),
        )
    assert server.verbs() == ["b", "a"]


def test_extender_is_not_called_after_three_failures_in_a_session():
    pods = [pod(f"p{at}", labels={"at": str(at)}, cpu=1) for at in range(8)]
    with extender(filter=500) as server:
        decision = decided(cluster(nodes(2), pods=tuple(pods)), stated(server.url), solver={"enabled": False})
    assert len(server.asked) == 3
    assert sum("is asked no more in this session" in one.message for one in decision.refusals) == 5


REPLAY = """
import socket, sys
from pathlib import Path

def refuse(*_, **__):
    raise SystemExit("the network was asked")

socket.socket.connect = refuse
socket.create_connection = refuse
from batchsched.cli import main
sys.argv = ["batchsched", "replay", sys.argv[1]]
main()
"""


def test_recorded_session_repeats_in_a_process_without_network_and_its_file_has_no_key(tmp_path):
    path = tmp_path / "session"
    with extender(filter=keeping("n2"), prioritize=500) as server:
        chosen = profile(
            extenders=[
                stated(server.url, prioritizeVerb="prioritize", weight=2, tlsConfig={"keyData": "c2VjcmV0"})
            ]
        )
        meeting = SessionRunner(chosen)
        labelled = replace(
            CLUSTER,
            nodes=tuple(replace_labels(one, {"z": "1", "a": "2"}) for one in CLUSTER.nodes),
        )
        decision = meeting.decide_from_snapshot(labelled, NOW, 0)
    write_session_file(path, SessionRecord(labelled, chosen, NOW, 0, decision, answers=meeting.answers))
    kept = read_session_file(path)
    assert set(placed(decision).values()) == {"n2"}
    assert kept.answers == meeting.answers
    assert kept.profile.extenders[0].tls_config.key_data == ""
    replayed = decide(
        kept.snapshot, kept.profile, kept.now, kept.seed, outside=kept.answers.create_replay_clients()
    )
    assert compare_decisions(kept.decision, replayed) == ()
    ran = subprocess.run(
        [sys.executable, "-c", REPLAY, str(path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "the decision repeats, byte for byte" in ran.stdout


def replace_labels(one, labels):
    return type(one)(metadata=ObjectMeta(name=one.name, labels=labels), status=one.status)


def test_question_that_was_not_recorded_has_no_answer(tmp_path):
    with extender(filter=keeping("n2")) as server:
        meeting = SessionRunner(profile(extenders=[stated(server.url)]))
        meeting.decide_from_snapshot(CLUSTER, NOW, 0)
    other = cluster(nodes(3), alone(1, cpu=1))
    decision = decide(
        other,
        profile(extenders=[stated(server.url)]),
        NOW,
        0,
        outside=meeting.answers.create_replay_clients(),
    )
    assert "the recorded session did not ask this" in decision.refusals[0].message


def test_runner_calls_extenders_only_if_the_profile_has_some():
    assert SessionRunner(profile()).outside.deadline is None
    with extender(filter=keeping("n1")) as server:
        chosen = profile(extenders=[stated(server.url)])
        decision = decide(CLUSTER, chosen, NOW, 0, outside=SessionRunner(chosen).outside)
    assert set(placed(decision).values()) == {"n1"}


def test_without_a_shell_extenders_are_out_of_reach():
    decision = decide(CLUSTER, profile(extenders=[stated("http://localhost:1/x")]), NOW, 0)
    assert placed(decision) == {}
    assert "extenders are not asked here" in decision.refusals[0].message


def test_managed_resources_are_ignored_by_the_built_in_plugin():
    chosen = profile(extenders=[stated("u", managedResources=[{"name": SHARE, "ignoredByScheduler": True}])])
    assert chosen.plugin_arguments("NodeResourcesFit") == {"ignoredResources": [SHARE]}
    with pytest.raises(InvalidInput, match="there is no plugin"):
        decide(CLUSTER, profile(plugins={"enabled": [{"name": "Missing"}]}), NOW, 0)


@pytest.mark.parametrize("answer, evicted", [({}, []), ("agree", ["low"])])
def test_preemption_uses_the_nodes_that_extenders_accept(answer, evicted):
    def agreeing(question):
        return {"NodeNameToMetaVictims": question["NodeNameToMetaVictims"]} if answer else answer

    pods = (pod("low", on="n0", cpu=60, priority=0), pod("high", cpu=60, priority=9))
    with extender(preempt=agreeing) as server:
        asked = stated(server.url, filterVerb="", preemptVerb="preempt")
        decision = decided(cluster(nodes(1), pods=pods), asked, solver={"enabled": False})
    assert server.verbs() == ["preempt"]
    assert [one.pod for one in decision.evictions] == evicted
    if not evicted:
        assert "no candidate node for preemption" in decision.refusals[0].message
