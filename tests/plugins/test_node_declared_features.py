import msgspec
import pytest

from batchsched.framework.cycle_state import CycleState
from batchsched.framework.status import Code
from batchsched.plugins.node_declared_features import NodeDeclaredFeatures
from tests.plugins.cluster import class_of, filtered, node, pod, refusals, table

REASON = ("node(s) didn't match Pod's required features",)
RESTART = "RestartAllContainersOnContainerExits"
USERS = "UserNamespacesHostNetworkSupport"
RESTARTING = {"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers"}]}


def declaring(name, *features):
    made = node(name)
    return msgspec.structs.replace(
        made, status=msgspec.structs.replace(made.status, declared_features=features)
    )


@pytest.mark.parametrize(
    "spec, needed",
    [
        ({"hostNetwork": True, "hostUsers": False}, USERS),
        ({"containers": [RESTARTING]}, RESTART),
        ({"initContainers": [RESTARTING]}, RESTART),
    ],
)
def test_a_pod_fits_only_where_what_it_needs_is_declared(spec, needed):
    made = table([declaring("a", USERS, RESTART), declaring("b", needed), declaring("c", "Other"), node("d")])
    assert refusals(NodeDeclaredFeatures(), pod(**spec), made) == {"c": REASON, "d": REASON}
    assert filtered(NodeDeclaredFeatures(), pod(**spec), made).unresolvable.tolist() == [
        False,
        False,
        True,
        True,
    ]


def test_a_pod_that_needs_two_features_fits_only_where_both_are_declared():
    made = table([declaring("a", USERS), declaring("b", RESTART), declaring("c", RESTART, USERS)])
    both = pod(hostNetwork=True, hostUsers=False, containers=[RESTARTING])
    assert set(refusals(NodeDeclaredFeatures(), both, made)) == {"a", "b"}


@pytest.mark.parametrize(
    "spec", [{}, {"hostNetwork": True}, {"hostUsers": False}, {"hostNetwork": True, "hostUsers": True}]
)
def test_a_pod_that_needs_no_feature_skips_the_filter(spec):
    made = table([node("a")])
    answer = NodeDeclaredFeatures().prefilter(
        class_of(made, pod(**spec)), made.all_nodes_view(), CycleState()
    )
    assert answer.status.code is Code.SKIP


def test_pods_with_equal_needs_are_one_class():
    plugin = NodeDeclaredFeatures()
    assert plugin.signature(pod(containers=[RESTARTING])) == plugin.signature(
        pod(initContainers=[RESTARTING])
    )
    assert plugin.signature(pod(containers=[RESTARTING])) != plugin.signature(pod())
