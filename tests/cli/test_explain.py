from pathlib import Path

import pytest

from batchsched.cli.explain import Explanation, GangOutcome, print_explanation
from batchsched.session.feasibility_report import (
    DomainFeasibility,
    GangFeasibility,
    LevelFeasibility,
    PartFeasibility,
)
from tests.cli.conftest import NOW, group
from tests.cli.test_printing import EVERYTHING, REFUSAL

EXAMPLES = Path(__file__).parents[2] / "examples"


def explain(command, name, *more):
    return command("explain", EXAMPLES, "--pod-group", name, "--now", NOW, *more)


def test_explanation_of_a_refused_gang_has_the_limiting_resource_and_the_room_in_each_domain(command):
    result = explain(command, "research/long-context", "-v")
    assert result.code == 0
    assert "PodGroup research/long-context: refused" in result.out
    for part in (
        "require the level block",
        "3 members of 64 cpu, 512Gi memory, 8 nvidia.com/gpu",
        "rack-2",
        "block-1",
    ):
        assert part in result.out
    assert max(map(len, result.out.splitlines())) <= 80


def test_refusal_is_that_of_the_decision(command):
    data = explain(command, "research/long-context", "-o", "json").data
    decision = command("decide", EXAMPLES, "--now", NOW, "-o", "json").data
    assert data["state"] == "Refused"
    assert data["refusal"] in decision["refusals"]


def test_room_in_domains_adds_up_to_the_room_in_all(command):
    data = explain(command, "research/long-context", "-o", "json").data
    (part,) = data["outlook"]["parts"]
    for level in part["levels"]:
        assert sum(domain["room"] for domain in level["domains"]) == part["room"]
        assert sum(domain["nodes"] for domain in level["domains"]) == part["nodes"] == 8


def test_explanation_of_a_placed_gang_has_its_nodes(command):
    result = explain(command, "research/llama")
    assert "PodGroup research/llama: placed, 2 pods" in result.out
    assert "minMember 2; 2 members pending" in result.out
    assert "to be bound:" in result.out


def test_subgroups_are_explained_separately(command):
    data = explain(command, "research/tuning", "-o", "json").data
    assert {part["subGroup"]: part["members"] for part in data["outlook"]["parts"]} == {
        "launcher": 1,
        "workers": 4,
    }


@pytest.mark.parametrize("name, state", [("product/evaluation", "Placed"), ("research/notebook", "Bound")])
def test_single_pod_can_be_explained(command, name, state):
    assert explain(command, name, "-o", "json").data["state"] == state


def test_running_pod_without_a_pod_group_is_explained_with_its_node_and_queue(command):
    pod = explain(command, "research/notebook", "-o", "json").data
    assert pod["kind"] == "Pod"
    assert explain(command, "research/notebook").out.strip() == (
        f"Pod research/notebook runs on {pod['node']}, queue {pod['outlook']['queue']}"
    )


def test_pod_group_without_pods_is_reported_as_such(command, cluster, tmp_path):
    (tmp_path / "none.yaml").write_text(group("none"))
    result = command("explain", cluster, tmp_path / "none.yaml", "--pod-group", "team-a/none", "--now", NOW)
    assert result.code == 0
    assert "NotEnoughPods" in result.out


def test_unknown_pod_group_is_wrong_usage_with_the_nearest_name(command):
    result = explain(command, "research/longcontext")
    assert result.code == 2
    words = result.complaint
    assert (
        "there is no PodGroup or pod 'research/longcontext'; did you mean podgroup/research/long-context?"
        in words
    )


def test_equal_name_in_another_namespace_precedes_similar_names_and_names_the_option(command):
    result = explain(command, "default/notebook")
    assert (
        "there is no PodGroup or pod 'default/notebook'; did you mean pod/research/notebook? Its namespace is selected "
        "by -n research" in result.complaint
    )


def test_unknown_name_is_answered_with_pods_too(command):
    result = explain(command, "research/notebok")
    assert "did you mean pod/research/notebook?" in result.complaint


def test_unknown_names_are_listed_with_their_kinds(command):
    result = explain(command, "nowhere/zzz")
    assert "known are pod/product/evaluation" in result.complaint
    assert "podgroup/research/long-context" in result.complaint


def test_bare_name_is_answered_with_the_forms_of_a_name(command):
    result = command("explain", "train")
    assert result.code == 2
    assert (
        "there is no file 'train'; for an object: podgroup/train, pod/train or job/train" in result.complaint
    )


def test_pending_pod_of_another_scheduler_is_said_to_be_that_of_the_other(command, tmp_path):
    (tmp_path / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: team-a}\n"
        "spec: {containers: [{name: main, image: web}]}\n"
    )
    result = command("explain", tmp_path / "pod.yaml", "pod/web", "-n", "team-a", "--now", NOW)
    assert result.code == 2
    assert "pod team-a/web is ignored, since 'default-scheduler' schedules it" in result.err
    assert "set spec.schedulerName: batchsched in the pod template" in result.err
    assert "a pending pod must have spec.schedulerName: batchsched" in result.complaint


def test_file_that_is_not_there_is_named(command):
    result = command("explain", "podgrup/bert")
    assert result.code == 2
    assert "there is no file 'podgrup/bert'" in result.complaint


def test_pod_group_that_was_set_aside_says_why(command, cluster, tmp_path):
    (tmp_path / "bad.yaml").write_text(group("bad", "{minMember: 0}"))
    result = command("explain", cluster, tmp_path / "bad.yaml", "--pod-group", "team-a/bad")
    assert result.code == 2
    assert "spec.minMember" in result.err


@pytest.mark.parametrize(
    "found, headline",
    [
        (Explanation(pod_group="a/g", state=GangOutcome.EMPTY), "PodGroup a/g: it has no pods"),
        (Explanation(pod_group="a/g", state=GangOutcome.BOUND), "PodGroup a/g: it runs with its minimum"),
        (Explanation(pod_group="a/g", state=GangOutcome.PLACED), "PodGroup a/g: placed, 0 pods"),
        (
            Explanation(pod_group="a/g", state=GangOutcome.WAITING, waiting=EVERYTHING.waiting[0]),
            "PodGroup a/g: held at Permit by Quota until 2026-01-01T00:10:00Z",
        ),
        (
            Explanation(pod_group="a/g", state=GangOutcome.REFUSED, refusal=REFUSAL),
            "PodGroup a/g: refused, InsufficientResources",
        ),
    ],
)
def test_explanation_begins_with_the_outcome_of_the_gang(found, headline, capsys):
    print_explanation(found)
    assert capsys.readouterr().out.splitlines()[0].startswith(headline)


def test_explanation_of_a_refusal_has_the_text_of_the_decision(capsys):
    print_explanation(Explanation(pod_group="a/g", state=GangOutcome.REFUSED, refusal=REFUSAL))
    out = capsys.readouterr().out
    assert "the message; would help (not verified): two more nodes" in out


def test_many_domains_are_cut_and_say_so(capsys):
    domains = tuple(DomainFeasibility(value=f"r{at}", nodes=1, open_nodes=1, room=9 - at) for at in range(10))
    part = PartFeasibility(
        sub_group="workers",
        members=3,
        requests={},
        nodes=10,
        open_nodes=10,
        room=45,
        reasons={"too small": 2},
        levels=(LevelFeasibility(level="rack", domains=domains),),
    )
    view = GangFeasibility(pod_group="a/g", min_member=3, bound=0, pending=3, parts=(part,))
    print_explanation(Explanation(pod_group="a/g", state=GangOutcome.EMPTY, outlook=view), verbose=True)
    out = capsys.readouterr().out
    assert "subGroup workers: 3 members of no request" in out
    assert "  2 nodes: too small" in out
    assert "and 2 more" in out


NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "16", memory: 64Gi, nvidia.com/gpu: "8", pods: "110"}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
---
"""


def pod_on(name: str, gang: str, more: str, status: str = "{}") -> str:
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: team-a, labels: {{scheduling.batchsched.dev/pod-group: {gang}}}}}
spec: {{schedulerName: batchsched, {more}
  containers: [{{name: m, image: i, resources: {{requests: {{nvidia.com/gpu: "8"}}}}}}]}}
status: {status}
---
"""


@pytest.fixture
def preemption(tmp_path) -> Path:
    """`hi` preempts `low` on the only node."""
    running = pod_on("low-0", "low", "nodeName: n1,", '{phase: Running, startTime: "2026-01-05T08:00:00Z"}')
    pending = pod_on("hi-0", "hi", "priorityClassName: high,")
    path = Path(tmp_path) / "preemption.yaml"
    path.write_text(
        f"{NODE}{group('low', '{minMember: 1}')}\n---\n{group('hi', '{minMember: 1}')}\n---{running}{pending}"
    )
    return path


def test_victim_is_explained_as_evicted_for_its_preemptor(command, preemption):
    out = command("explain", preemption, "--pod-group", "team-a/low", "--now", NOW).out
    assert out.splitlines()[0] == "PodGroup team-a/low: evicted for team-a/hi (Preempted)"
    assert out.splitlines()[1] == "minMember 1; 1 member runs and is evicted"


def test_preemptor_is_explained_as_waiting_for_its_nominated_node(command, preemption):
    out = command("explain", preemption, "--pod-group", "team-a/hi", "--now", NOW).out
    assert "starts when the pods that are evicted for it have left" in out.splitlines()[0]
    assert "waits for its nominated node n1" in out
    assert "would help" not in out


def test_decision_does_not_count_a_preemptor_as_refused(command, preemption):
    result = command("decide", preemption, "--now", NOW)
    assert result.out.splitlines()[1].split()[:2] == ["team-a/hi", "Preempting"]
    assert "1 starting after evictions, 0 refused" in result.err
    assert "would help" not in result.out


def test_member_is_explained_as_its_gang(command, preemption):
    result = command("explain", preemption, "--pod-group", "team-a/hi-0", "--now", NOW)
    assert result.out.startswith("PodGroup team-a/hi: ")
    assert "pod team-a/hi-0 is a member of PodGroup team-a/hi" in result.err


def test_explanation_has_queue_position_share_and_priority(command):
    out = explain(command, "research/long-context").out
    assert "queue research, position " in out
    assert ", priority " in out


def test_without_a_name_all_refused_gangs_are_explained(command):
    result = command("explain", EXAMPLES, "--now", NOW)
    decision = command("decide", EXAMPLES, "--now", NOW, "-o", "json").data
    for refusal in decision["refusals"]:
        assert f"PodGroup {refusal['podGroup']}: refused" in result.out


def test_decision_states_what_admits_each_refused_gang(command):
    decision = command("decide", EXAMPLES, "--now", NOW, "-o", "json").data
    for refusal in decision["refusals"]:
        assert refusal["verified"]
        assert refusal["changes"]
