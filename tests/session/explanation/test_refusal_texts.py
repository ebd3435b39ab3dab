"""A refusal says whether the gang can ever start, which gangs precede it, and the smallest change that places it."""

from dataclasses import replace

import msgspec
import pytest

from batchsched.api.core.node import Node, NodeSpec, Taint
from batchsched.api.core.pod import POD_GROUP_LABEL, QUEUE_LABEL, Pod, PodSpec
from batchsched.api.core.volume import PersistentVolumeClaimVolumeSource, Volume
from batchsched.api.decision import (
    InputChange,
    PrecedingGang,
    Refusal,
    new_nodes_may_help,
    refusal_text,
)
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.session.explanation.explain import RefusalVerifier, explain_refusals
from batchsched.session.explanation.verification import MAX_VERIFICATION_WORK, DecidedInput
from batchsched.solver.relaxation.budget import ExplanationBudget
from tests.session.scenario import (
    GPU,
    NOW,
    cluster,
    gang,
    group,
    node,
    nodes,
    pod,
    priority_class,
    profile,
    queue,
    schedule,
    topology,
)


def explained(
    snapshot: Snapshot, settings: Profile | None = None, budget: float | None = None
) -> dict[str, Refusal]:
    settings = settings or profile()
    session = DecidedInput(snapshot, settings, NOW, 0, schedule(snapshot, settings))
    limited = ExplanationBudget(MAX_VERIFICATION_WORK) if budget is None else ExplanationBudget(budget)
    return {refusal.pod_group: refusal for refusal in explain_refusals(session, limited).refusals}


def changes_of(refusal: Refusal) -> list[dict]:
    return list(msgspec.to_builtins(refusal.changes))


def tainted(name: str, key: str, **allocatable) -> Node:
    made = node(name, {"pool": name[0]}, **allocatable)
    return msgspec.structs.replace(
        made, spec=NodeSpec(taints=(Taint(key=key, value="true", effect="NoSchedule"),))
    )


def with_spec(one: Pod, fields: dict) -> Pod:
    spec = msgspec.to_builtins(one.spec) | fields
    return msgspec.structs.replace(one, spec=msgspec.convert(spec, PodSpec))


def racks(*names: str):
    return tuple(node(f"n{at}", {"rack": name, "block": "b"}, gpu=8) for at, name in enumerate(names))


EIGHT = {"gpu": 8}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NO_LABEL = {"key": "absent", "operator": "Exists"}
ANY_POD: dict = {}
OTHER_APP = {"matchLabels": {"app": "other"}}


def test_number_of_nodes_includes_those_that_gangs_ahead_take():
    """Three gangs wait: the two first take new nodes before the last one gets any."""
    ahead = [gang(name, 2, age=100, requests=EIGHT, priorityClassName="high") for name in ("first", "second")]
    template = {"priority_class_name": "high"}
    pods = [
        pod(f"{name}-{at}", group=name, spec=template, gpu=8)
        for name in ("first", "second")
        for at in range(2)
    ]
    parts = [Snapshot(pods=tuple(pods), pod_groups=tuple(one.pod_groups[0] for one in ahead))]
    snapshot = cluster(
        nodes(1, gpu=8),
        *parts,
        gang("last", 3, requests=EIGHT),
        priority_classes=(priority_class("high", 100),),
    )
    last = explained(snapshot)["team/last"]
    assert changes_of(last) == [{"copy": "Node/n0", "count": 6}]
    assert last.relaxation == "6 more nodes like n0"
    assert last.verified


def test_limit_is_raised_by_what_is_missing_and_no_more():
    snapshot = cluster(
        nodes(4, gpu=8),
        gang("before", 2, age=100, requests=EIGHT, queue="q"),
        gang("after", 1, requests={"gpu": 3}, queue="q"),
        queues=(queue("q", limit={GPU: "16"}),),
    )
    after = explained(snapshot)["team/after"]
    assert changes_of(after) == [{"set": "Queue/q", "path": "/spec/limit/nvidia.com~1gpu", "value": "19"}]
    assert after.missing == {GPU: 3}
    assert after.startable
    assert after.ahead == (PrecedingGang(pod_group="team/before", because="Weight"),)
    assert after.relaxation == "raise the limit of queue q by 3 to 19 nvidia.com/gpu"


def running(name: str, on: str, **spec) -> Snapshot:
    return Snapshot(pods=(pod(f"{name}-0", group=name, on=on, gpu=8),), pod_groups=(group(name, 1, **spec),))


@pytest.mark.parametrize(
    "limits", [{"limit": {GPU: "8"}}, {"maxRunningPodGroups": 1}], ids=["amount", "number of PodGroups"]
)
def test_gangs_that_use_a_limit_count_against_it(limits):
    snapshot = cluster(
        nodes(2, gpu=8),
        running("old", "n0", queue="q"),
        gang("new", 1, requests=EIGHT, queue="q"),
        queues=(queue("q", **limits),),
    )
    assert explained(snapshot)["team/new"].message.endswith("; team/old counts against this limit")


def test_gang_that_took_the_room_is_named_once():
    snapshot = cluster(
        nodes(1, gpu=8),
        gang("urgent", 1, requests=EIGHT, priorityClassName="high"),
        gang("calm", 1, requests=EIGHT),
        priority_classes=(priority_class("high", 1000),),
    )
    assert explained(snapshot)["team/calm"].message == (
        "0 of 1 pod fits; missing: nvidia.com/gpu 8; team/urgent goes first by its priority"
    )


def test_more_than_ten_gangs_ahead_are_not_counted():
    snapshot = cluster(
        nodes(12, gpu=8),
        *(running(f"old-{at:02}", f"n{at}") for at in range(12)),
        gang("new", 1, requests=EIGHT),
    )
    message = explained(snapshot)["team/new"].message
    assert message.endswith("; team/old-00, team/old-01, team/old-02 and others run there")


@pytest.mark.parametrize(
    "pools, text",
    [
        (["a"], "the only node refuses a pod: it does not match the nodeSelector pool=b"),
        (["a", "a"], "none of the 2 nodes accepts a pod: 2 do not match the nodeSelector pool=b"),
    ],
)
def test_nodes_that_refuse_a_pod_are_counted(pools, text):
    selecting = pod("x", spec={"node_selector": {"pool": "b"}}, gpu=1)
    some = [node(f"n{at}", {"pool": pool}, gpu=8) for at, pool in enumerate(pools)]
    refused = explained(cluster(some, Snapshot(pods=(selecting,))))["team/x"]
    assert refused.message == f"can never start on this cluster: {text}"


def test_gang_that_lacks_pods_or_its_queue_may_still_start():
    snapshot = cluster(nodes(1, gpu=8), gang("late", 1, 2), gang("lost", 1, queue="train"))
    refusals = explained(snapshot)
    assert not any(refusals[key].startable for key in ("team/late", "team/lost"))
    assert not any("can never start" in refusal.message for refusal in refusals.values())


def test_gang_above_the_limit_of_its_queue_can_never_start():
    snapshot = cluster(
        nodes(4, gpu=8),
        gang("large", 9, requests={"gpu": 2}, queue="q"),
        queues=(queue("q", limit={GPU: "16"}),),
    )
    large = explained(snapshot)["team/large"]
    assert not large.startable
    assert large.message == (
        "can never start on this cluster: asks for 18 nvidia.com/gpu, the limit of queue q is 16"
    )
    assert large.missing == {GPU: 2}


def test_missing_toleration_is_named_before_new_nodes():
    snapshot = cluster([tainted("a0", "acme.io/a100", gpu=8)], gang("plain", 2, requests={"gpu": 1}))
    plain = explained(snapshot)["team/plain"]
    toleration = {"key": "acme.io/a100", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
    assert changes_of(plain) == [
        {"set": "PodTemplate/team/plain", "path": "/spec/tolerations/-", "value": toleration}
    ]
    assert "taint acme.io/a100=true:NoSchedule" in plain.message
    assert plain.relaxation == "tolerate the taint acme.io/a100=true:NoSchedule"
    assert not plain.startable


@pytest.mark.parametrize(
    "spec, removed, text",
    [
        (
            {
                "affinity": {
                    "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [NO_LABEL]}]}}
                }
            },
            f"/spec/affinity/nodeAffinity/{REQUIRED}",
            "remove the required node affinity of its pods",
        ),
        (
            {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "rack", "labelSelector": OTHER_APP}]}}},
            f"/spec/affinity/podAffinity/{REQUIRED}",
            "remove the required pod affinity of its pods",
        ),
        (
            {
                "affinity": {
                    "podAntiAffinity": {REQUIRED: [{"topologyKey": "block", "labelSelector": ANY_POD}]}
                }
            },
            f"/spec/affinity/podAntiAffinity/{REQUIRED}",
            "remove the required pod anti-affinity of its pods",
        ),
        (
            {
                "topologySpreadConstraints": [
                    {"topologyKey": "absent", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": ANY_POD}
                ]
            },
            "/spec/topologySpreadConstraints",
            "remove the topology spread constraints of its pods",
        ),
    ],
)
def test_constraint_that_no_node_satisfies_is_named_before_new_nodes(spec, removed, text):
    free = gang("apart", 2, requests={"gpu": 1})
    constrained = tuple(with_spec(one, spec) for one in free.pods)
    apart = explained(cluster(racks("r0", "r1"), replace(free, pods=constrained)))["team/apart"]
    assert changes_of(apart) == [{"set": "PodTemplate/team/apart", "path": removed, "value": None}]
    assert apart.relaxation == text


def test_refusal_of_a_pod_with_an_absent_claim_names_the_claim():
    volumes = (
        Volume(name="data", persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name="data")),
    )
    snapshot = cluster(nodes(2, gpu=8), pods=[pod("p", spec={"volumes": volumes})])
    (refusal,) = explained(snapshot).values()
    # Another client may still create the claim, so the message does not begin with "can never start".
    assert refusal.message == '0/2 nodes are available: persistentvolumeclaim "data" not found.'


def test_taint_of_nodes_that_the_gang_does_not_select_is_tolerated_with_another_selector():
    snapshot = cluster(
        [tainted("a0", "own", gpu=8), node("b0", {"pool": "b"}, gpu=0)], gang("lost", 2, requests={"gpu": 1})
    )
    lost = tuple(with_spec(one, {"nodeSelector": {"pool": "b"}}) for one in snapshot.pods)
    refused = explained(replace(snapshot, pods=lost))["team/lost"]
    assert refused.relaxation == "tolerate the taint own=true:NoSchedule; and select nodes with pool=a"


@pytest.mark.parametrize(
    "selector, text",
    [
        ({"disk": "ssd"}, "remove the nodeSelector of its pods"),
        ({"disk": "ssd", "pool": "a"}, "select nodes by pool=a only"),
    ],
    ids=["alone", "beside another"],
)
def test_label_that_no_node_has_is_not_selected(selector, text):
    free = gang("lost", 2, requests={"gpu": 1})
    lost = tuple(with_spec(one, {"nodeSelector": selector}) for one in free.pods)
    assert (
        explained(cluster([node("a0", {"pool": "a"}, gpu=8)], replace(free, pods=lost)))[
            "team/lost"
        ].relaxation
        == text
    )


def test_only_those_taints_of_a_node_are_tolerated_that_stop_the_gang():
    """The nodes that the gang selects have two taints; the nodes that would take it have one of them."""
    both = tainted("b0", "own", gpu=0)
    other = Taint(key="other", value="true", effect="NoSchedule")
    both = msgspec.structs.replace(both, spec=NodeSpec(taints=(other, *both.taints)))
    snapshot = cluster([tainted("a0", "own", gpu=8), both], gang("lost", 2, requests={"gpu": 1}))
    lost = tuple(with_spec(one, {"nodeSelector": {"pool": "b"}}) for one in snapshot.pods)
    refused = explained(replace(snapshot, pods=lost))["team/lost"]
    assert refused.relaxation == "tolerate the taint own=true:NoSchedule; and select nodes with pool=a"


def test_spread_that_pods_of_others_make_possible_is_not_removed():
    """Two pods on one node are even with the pod on the other node, and would not be on the empty cluster."""
    spread = {
        "topologySpreadConstraints": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "maxSkew": 1,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchExpressions": [{"key": POD_GROUP_LABEL, "operator": "Exists"}]},
            }
        ]
    }
    fat = gang("fat", 2, requests={"gpu": 9})
    fat = replace(fat, pods=tuple(with_spec(one, spread) for one in fat.pods))
    beside = Snapshot(pods=(pod("old-0", group="old", on="n1"),), pod_groups=(group("old", 1),))
    refused = explained(cluster([node("n0", gpu=8), node("n1", gpu=0)], fat, beside))["team/fat"]
    assert not refused.startable
    assert refused.relaxation == "ask for at most 4 nvidia.com/gpu in a pod"


def test_largest_size_is_that_of_nodes_of_which_the_pods_tolerate_the_taints():
    fat = gang("fat", 1, requests={"gpu": 16})
    fat = replace(fat, pods=tuple(with_spec(one, {"nodeSelector": {"pool": "b"}}) for one in fat.pods))
    refused = explained(cluster([tainted("a0", "own", gpu=16), node("b0", {"pool": "b"}, gpu=8)], fat))[
        "team/fat"
    ]
    assert refused.relaxation == "ask for at most 8 nvidia.com/gpu in a pod"


def test_refusal_of_a_pod_larger_than_every_node_names_the_largest_size():
    fat = explained(cluster(nodes(3, gpu=8), gang("fat", 1, requests={"gpu": 16})))["team/fat"]
    assert fat.message == (
        "can never start on this cluster: a pod asks for 16 nvidia.com/gpu, the largest node that it may use has 8"
    )
    assert fat.relaxation == "ask for at most 8 nvidia.com/gpu in a pod"


def test_gang_above_guarantee_and_borrowing_limit_is_told_about_both():
    snapshot = cluster(
        nodes(4, gpu=8),
        gang("large", 2, requests={"cpu": "9125m"}, queue="q"),
        queues=(queue("q", guarantee={"cpu": "4"}, borrowing_limit={"cpu": "2"}),),
    )
    assert explained(snapshot)["team/large"].message == (
        "can never start on this cluster: asks for 18250m cpu, the guarantee plus borrowingLimit of queue q is 6000m"
    )


def test_borrowing_limit_is_raised_beyond_the_guarantees_of_the_children():
    snapshot = cluster(
        nodes(4, gpu=8),
        gang("large", 12, queue="x"),
        queues=(
            queue("cohort", borrowing_limit={GPU: "2"}),
            queue("x", parent="cohort", guarantee={GPU: "8"}),
        ),
    )
    change = explained(snapshot)["team/large"].relaxation
    assert change == "raise the borrowingLimit of queue cohort by 2 to 4 nvidia.com/gpu"


def test_limit_that_others_use_is_not_the_reason_why_a_gang_that_no_rack_holds_can_never_start():
    tree = gang("two-kinds", 2, 3, requests=EIGHT, queue="q", topology={"required": "rack"})
    tree = replace(tree, pods=(*tree.pods, pod("small", group="two-kinds", gpu=7)))
    snapshot = cluster(
        racks("r0", "r0", "r1", "r1"),
        gang("other", 1, age=100, requests=EIGHT, queue="q"),
        tree,
        queues=(queue("q", limit={GPU: "24"}),),
        topologies=(topology("block", "rack"),),
    )
    refused = explained(snapshot)["team/two-kinds"]
    assert refused.message == (
        "can never start on this cluster: its pods do not fit together on the empty nodes; in this session, "
        "the limit of queue q is short of nvidia.com/gpu 7"
    )


def test_limit_is_raised_to_what_smaller_pods_use():
    snapshot = cluster(
        nodes(1, gpu=8),
        gang("fat", 5, requests={"gpu": 16}, queue="q"),
        queues=(queue("q", limit={GPU: "3"}),),
    )
    assert explained(snapshot)["team/fat"].relaxation == (
        "ask for at most 1 nvidia.com/gpu in a pod; and raise the limit of queue q by 2 to 5 nvidia.com/gpu"
    )


def test_refusal_of_a_gang_too_large_for_every_rack_names_the_wider_level():
    snapshot = cluster(
        racks("r0", "r0", "r1", "r1"),
        gang("wide", 3, requests=EIGHT, topology={"required": "rack"}),
        topologies=(topology("block", "rack"),),
    )
    wide = explained(snapshot)["team/wide"]
    assert wide.reason == "InsufficientTopologyCapacity"
    assert wide.message == "can never start on this cluster: needs 3 nodes in one rack, racks have 2"
    assert changes_of(wide) == [
        {"set": "PodGroup/team/wide", "path": "/spec/topology/required", "value": "block"}
    ]


def test_nearest_level_that_places_the_gang_is_named_although_a_wider_one_would_not():
    """The nodes of one block have no label of a zone, so that they are in no zone."""
    labels = [
        {"rack": "r0", "block": "b", "zone": "z"},
        {"rack": "r1", "block": "c"},
        {"rack": "r2", "block": "c"},
    ]
    snapshot = cluster(
        tuple(node(f"n{at}", each, gpu=8) for at, each in enumerate(labels)),
        gang("wide", 2, requests=EIGHT, topology={"required": "rack"}),
        gang("blocking", 1, requests={"gpu": 1}, topology={"required": "zone"}),
        topologies=(topology("zone", "block", "rack"),),
    )
    level = {"set": "PodGroup/team/wide", "path": "/spec/topology/required", "value": "block"}
    assert changes_of(explained(snapshot)["team/wide"]) == [level]


def test_gangs_inside_their_guarantee_are_named_as_ahead():
    queues = (queue("research", guarantee={GPU: "16"}), queue("prod", guarantee={GPU: "8"}))
    urgent = [
        pod(f"urgent-{at}", group="urgent", spec={"priority_class_name": "high"}, gpu=8) for at in range(2)
    ]
    snapshot = cluster(
        nodes(3, gpu=8),
        gang("entitled", 2, requests=EIGHT, queue="research"),
        Snapshot(
            pods=tuple(urgent),
            pod_groups=gang("urgent", 2, queue="prod", priorityClassName="high").pod_groups,
        ),
        queues=queues,
        priority_classes=(priority_class("high", 1000),),
    )
    refused = explained(snapshot)["team/urgent"]
    assert refused.ahead == (PrecedingGang(pod_group="team/entitled", because="Guarantee"),)
    assert "team/entitled goes first: it is inside the guarantee of its queue" in refused.message


def test_preempting_gang_waits_for_its_nominated_node_and_needs_no_change():
    running = pod("low-0", group="low", on="n0", gpu=8)
    urgent = pod("hi-0", group="hi", spec={"priority_class_name": "high"}, gpu=8)
    snapshot = cluster(
        nodes(1, gpu=8),
        Snapshot(pods=(running, urgent), pod_groups=(*gang("low", 1).pod_groups, *gang("hi", 1).pod_groups)),
        priority_classes=(priority_class("high", 1000),),
    )
    waiting = explained(snapshot)["team/hi"]
    assert waiting.message == "waits for its nominated node n0: it starts when team/low has left"
    assert (waiting.relaxation, waiting.changes, waiting.verified) == ("", (), True)


def test_refusal_for_too_few_pods_names_the_minimum_that_exists():
    late = explained(cluster(nodes(2, gpu=8), gang("late", 2, 4, requests={"gpu": 1})))["team/late"]
    assert changes_of(late) == [{"set": "PodGroup/team/late", "path": "/spec/minMember", "value": 2}]


def test_refusal_for_an_unknown_queue_names_the_queue_of_a_similar_name():
    snapshot = cluster(
        nodes(2, gpu=8), gang("lost", 1, queue="trian"), queues=(queue("infer"), queue("train"))
    )
    lost = explained(snapshot)["team/lost"]
    assert changes_of(lost) == [{"set": "PodGroup/team/lost", "path": "/spec/queue", "value": "train"}]


def test_refusal_for_an_unknown_queue_without_any_queue_names_the_default_queue_or_its_creation():
    lost = explained(cluster(nodes(2, gpu=8), gang("lost", 1, queue="train")))["team/lost"]
    assert changes_of(lost) == [{"set": "PodGroup/team/lost", "path": "/spec/queue", "value": "default"}]
    assert lost.relaxation == "use queue default, or create queue train"


def test_refusal_of_a_single_pod_with_a_label_of_an_unknown_queue_names_the_default_queue():
    lost = pod("lost", labels={QUEUE_LABEL: "train"}, gpu=1)
    refused = explained(cluster(nodes(1, gpu=8), Snapshot(pods=(lost,))))["team/lost"]
    assert [change["value"] for change in changes_of(refused)] == ["default"]
    assert refused.relaxation == "use queue default, or create queue train"


def test_new_nodes_do_not_help_a_gang_that_also_needs_a_higher_limit():
    short = Refusal(pod_group="a/b", reason="InsufficientResources", message="")
    nodes_only = (InputChange(copy="Node/n0", count=1),)
    limit = (InputChange(set="Queue/q", path="/spec/limit/cpu", value="4"),)
    assert [
        new_nodes_may_help(msgspec.structs.replace(short, changes=changes))
        for changes in ((), nodes_only, limit, (*limit, *nodes_only))
    ] == [True, True, False, False]


def test_refusal_without_budget_says_that_nothing_is_verified():
    refused = explained(cluster(nodes(1, gpu=8), gang("large", 2, requests=EIGHT)), budget=0.0)["team/large"]
    assert not refused.verified
    assert refused.message.endswith(
        "what would help is not verified, since the budget for explanations is spent"
    )


def test_defect_in_the_explanation_of_one_gang_leaves_the_decision_and_the_other_explanations(monkeypatch):
    explain = RefusalVerifier.explain_refusal

    def explain_refusal(self: RefusalVerifier, refusal: Refusal, budget: ExplanationBudget) -> Refusal:
        if refusal.pod_group == "team/bad":
            raise RuntimeError("a defect")
        return explain(self, refusal, budget)

    monkeypatch.setattr(RefusalVerifier, "explain_refusal", explain_refusal)
    snapshot = cluster(nodes(1, gpu=8), gang("bad", 2, requests=EIGHT), gang("good", 2, requests=EIGHT))
    refusals = explained(snapshot)
    assert refusals["team/bad"].message.endswith(
        "; the explanation failed, please report it: RuntimeError: a defect"
    )
    assert not refusals["team/bad"].verified
    assert refusals["team/good"].verified


def test_text_of_a_refusal_says_whether_its_change_is_verified():
    plain = Refusal(pod_group="a/b", reason="QueueLimit", message="the message.", relaxation="one more node")
    assert refusal_text(plain) == "the message; would help (not verified): one more node"
    proved = msgspec.structs.replace(plain, verified=True)
    assert refusal_text(proved) == "the message; would help: one more node"


@pytest.mark.parametrize("selection", ["weight", "ordered"])
def test_explaining_twice_gives_equal_refusals(selection):
    snapshot = cluster(nodes(2, gpu=4), gang("a", 3, requests={"gpu": 4}), gang("b", 2, requests={"gpu": 3}))
    settings = profile(selection=selection)
    assert explained(snapshot, settings) == explained(snapshot, settings)
