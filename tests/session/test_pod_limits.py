"""A pending pod that states too much is refused with its reason, before tables are built for it."""

import msgspec
import pytest

from batchsched.api.core.pod import Pod, PodSpec
from batchsched.api.core.pod_field_limits import FIELD_LIMITS, describe_exceeded_field_limit
from batchsched.config.schema import Profile
from batchsched.session.session import Session
from tests.session.scenario import NOW, alone, cluster, node, nodes, placed, profile, reasons, schedule


def pod_of(name, spec, *, on="", labels=None):
    document = {
        "metadata": {"name": name, "namespace": "team", "labels": labels or {}},
        "spec": {"schedulerName": "batchsched", "nodeName": on, "containers": [{"name": "main"}], **spec},
    }
    return msgspec.convert(document, Pod)


def term(key="app", value="x"):
    return {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {key: value}}}


def anti_affinity(*terms):
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def node_affinity(*terms):
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def values(count):
    return [f"v{number}" for number in range(count)]


SPECS = {
    "different resources": lambda count: {
        "containers": [
            {"name": "main", "resources": {"requests": {f"x.com/r{n}": "0" for n in range(count)}}}
        ]
    },
    "host ports": lambda count: {
        "containers": [
            {"name": "main", "ports": [{"containerPort": 1, "hostPort": n + 1} for n in range(count)]}
        ]
    },
    "labels": lambda count: {"nodeSelector": {f"label{n}": "v" for n in range(count)}},
    "terms and expressions": lambda count: node_affinity(
        *({"matchExpressions": [{"key": f"k{n}", "operator": "DoesNotExist"}]} for n in range(count // 2)),
        *({} for _ in range(count % 2)),
    ),
    "values of expressions": lambda count: node_affinity(
        {"matchExpressions": [{"key": "k", "operator": "NotIn", "values": values(count)}]}
    ),
    "terms of podAffinity and podAntiAffinity": lambda count: anti_affinity(
        *(term(value=str(n)) for n in range(count))
    ),
    "constraints": lambda count: {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": f"k{n}", "whenUnsatisfiable": "ScheduleAnyway"}
            for n in range(count)
        ]
    },
    "labels, values and namespaces of selectors": lambda count: anti_affinity(
        {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchExpressions": [{"key": "k", "operator": "In", "values": values(count)}]},
        }
    ),
    "tolerations": lambda count: {
        "tolerations": [{"key": f"k{n}", "operator": "Exists"} for n in range(count)]
    },
}


def test_every_limit_has_a_case_below():
    assert [limit.noun for limit in FIELD_LIMITS] == list(SPECS)


@pytest.mark.parametrize("limit", FIELD_LIMITS, ids=lambda limit: limit.noun)
def test_pod_at_a_limit_is_scheduled_and_one_above_it_is_refused_by_name(limit):
    most = pod_of("most", SPECS[limit.noun](limit.maximum))
    more = pod_of("more", SPECS[limit.noun](limit.maximum + 1))
    labelled = node("n0", labels=SPECS["labels"](300)["nodeSelector"])
    decision = schedule(cluster([labelled], pods=(most, more)))
    assert list(placed(decision)) == ["most"]
    (refusal,) = decision.refusals
    assert (refusal.pod_group, refusal.reason) == ("team/more", "PodSpecLimit")
    for part in (
        "pod team/more",
        f"spec.{limit.field}",
        limit.noun,
        str(limit.maximum),
        str(limit.maximum + 1),
    ):
        assert part in refusal.message


@pytest.mark.parametrize(
    "settings", [profile(), profile(selection="ordered"), profile(solver={"enabled": False})]
)
def test_pod_above_a_limit_delays_no_other_pod(settings):
    large = pod_of("large", SPECS["different resources"](5000))
    decision = schedule(cluster(nodes(1), alone(3, cpu=1), pods=(large,)), settings)
    assert sorted(placed(decision)) == ["solo-0", "solo-1", "solo-2"]
    assert reasons(decision) == {"team/large": "PodSpecLimit"}


def requesting(containers, **requests):
    resources = {"requests": requests}
    return {"containers": [{"name": f"c{number}", "resources": resources} for number in range(containers)]}


@pytest.mark.parametrize("containers", [2, 2**13])
def test_pod_with_containers_that_request_too_much_together_is_refused_alone(containers):
    most = pod_of("most", requesting(1, memory="1Pi"))
    more = pod_of("more", requesting(containers, memory="1Pi"))
    decision = schedule(cluster(nodes(1), alone(2, cpu=1), pods=(most, more)))
    assert sorted(placed(decision)) == ["solo-0", "solo-1"]
    assert reasons(decision)["team/more"] == "PodSpecLimit" != reasons(decision)["team/most"]
    (message,) = (refusal.message for refusal in decision.refusals if refusal.pod_group == "team/more")
    assert message.startswith(f"pod team/more: spec.containers request {containers}Pi of memory together")
    assert "at most 1Pi" in message


def test_bound_pod_that_requests_too_much_uses_up_its_node_only():
    there = pod_of("there", requesting(2**13, memory="1Pi"), on="n0")
    decision = schedule(cluster(nodes(2), alone(2, cpu=1, memory="1Gi"), pods=(there,)))
    assert set(placed(decision).values()) == {"n1"}


def test_no_table_has_a_column_for_a_resource_of_a_pod_above_a_limit():
    large = pod_of("large", SPECS["different resources"](5000))
    session = Session(cluster(nodes(1), pods=(large,)), Profile())
    assert not any(name.startswith("x.com/") for name in session.tables.node_table.resources)
    session.decide(NOW, 0)


def test_bound_pod_above_a_limit_still_keeps_other_pods_off_its_node():
    terms = [term(value=str(number)) for number in range(200)]
    there = pod_of("there", anti_affinity(*terms, term()), on="n0")
    arriving = pod_of("arriving", {}, labels={"app": "x"})
    decision = schedule(cluster(nodes(2), pods=(there, arriving)))
    assert placed(decision) == {"arriving": "n1"}


def test_first_exceeded_limit_is_stated_once_with_its_field():
    spec = SPECS["tolerations"](300) | SPECS["labels"](300)
    assert describe_exceeded_field_limit(pod_of("p", spec).spec).startswith(
        "spec.nodeSelector has 300 labels"
    )
    assert describe_exceeded_field_limit(PodSpec()) == ""


def many_resources(pods, resources=40):
    return [
        pod_of(
            f"many-{number}",
            {
                "containers": [
                    {
                        "name": "main",
                        "resources": {"requests": {f"x.com/r{number}-{n}": "1" for n in range(resources)}},
                    }
                ]
            },
        )
        for number in range(pods)
    ]


@pytest.mark.parametrize(
    "settings", [profile(), profile(selection="ordered"), profile(solver={"enabled": False})]
)
def test_resources_that_no_node_offers_have_columns_only_while_they_are_few(settings):
    pods, widths, messages = [*many_resources(10)], [], []
    for count in (6, 10):
        session = Session(cluster(nodes(2), alone(1, cpu=1), pods=pods[:count]), settings)
        decision = session.decide(NOW, 0)
        assert list(placed(decision)) == ["solo-0"]
        assert set(reasons(decision).values()) == {"NoFeasibleNode"}
        widths.append(len(session.tables.node_table.resources))
        messages.append(decision.refusals[0].message)
    assert widths == [4 + 6 * 40, 4]
    assert "no node offers x.com/r0-0, x.com/r0-1" in messages[1]


def test_resource_that_an_extender_manages_needs_no_column():
    extender = {
        "urlPrefix": "http://127.0.0.1:9/none",
        "managedResources": [{"name": "x.com/r0-0", "ignoredByScheduler": True}],
        "ignorable": True,
    }
    pods = [*many_resources(1, 1), *(many_resources(10)[1:])]
    decision = schedule(cluster(nodes(1), pods=pods), profile(extenders=[extender]))
    assert list(placed(decision)) == ["many-0"]
