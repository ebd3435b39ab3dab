"""What a pod asks for, and the defaults for pods that ask for nothing."""

import msgspec
import pytest
from pydantic import ValidationError

from batchsched.api.core.cluster_objects import ReplicaSet, Service
from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.status import Code
from batchsched.plugins.pod_topology_spread import PodTopologySpread
from tests.plugins import neighbours as nb
from tests.plugins.cluster import class_of

NODES = [nb.node("n0", {nb.ZONE: "x"}), nb.node("n1", {nb.ZONE: "y"})]


def service(selector: dict[str, str] | None, namespace: str = "default") -> Service:
    content = {"metadata": {"name": "s", "namespace": namespace}, "spec": {"selector": selector}}
    return msgspec.convert(content, Service)


def listed(**constraint) -> PodTopologySpread:
    stated = {"topologyKey": nb.ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **constraint}
    args = {"defaultingType": "List", "defaultConstraints": [stated]}
    return PodTopologySpread(PodTopologySpread.Args.model_validate(args))


def test_default_constraints_hold_for_pods_that_a_service_selects():
    table = nb.table_of(NODES, [(nb.pod("e", {"app": "a"}), 0)], services=[service({"app": "a"})])
    assert nb.fits(listed(), table, nb.pod("w", {"app": "a"})) == ["n1"]
    assert nb.fits(listed(), table, nb.pod("w", {"app": "b"})) == ["n0", "n1"]
    assert nb.fits(listed(), table, nb.pod("w", {"app": "a"}, namespace="other")) == ["n0", "n1"]


def test_services_without_a_selector_select_no_pod():
    table = nb.table_of(NODES, [(nb.pod("e", {"app": "a"}), 0)], services=[service(None), service({})])
    assert nb.fits(listed(), table, nb.pod("w", {"app": "a"})) == ["n0", "n1"]


def owned(labels: dict[str, str], name: str) -> Pod:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "controller": True}
    return msgspec.convert(
        {"metadata": {"name": "w", "namespace": "default", "labels": labels, "ownerReferences": [owner]}}, Pod
    )


def test_default_constraints_take_the_selector_of_the_owner():
    content = {
        "metadata": {"name": "rs", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}},
    }
    table = nb.table_of(NODES, [(nb.pod("e", {"app": "a"}), 0)])
    table.cluster_objects = Snapshot(nodes=tuple(NODES), replica_sets=(msgspec.convert(content, ReplicaSet),))
    assert nb.fits(listed(), table, owned({"app": "a"}, "rs")) == ["n1"]
    assert nb.fits(listed(), table, owned({"app": "a"}, "another")) == ["n0", "n1"]
    assert listed().object_selector_label_keys(table.cluster_objects) == {"app"}


def test_a_pods_own_constraints_replace_the_defaults():
    table = nb.table_of(NODES, [(nb.pod("e", {"app": "a"}), 0)], services=[service({"app": "a"})])
    own = nb.pod("w", {"app": "a"}, topologySpreadConstraints=[nb.spread(nb.ZONE, "a", skew=2)])
    assert nb.fits(listed(), table, own) == ["n0", "n1"]


def test_system_default_constraints_only_score_and_apply_to_nodes_without_a_zone():
    plugin = PodTopologySpread()
    nodes = [*NODES, nb.node("bare")]
    table = nb.table_of(nodes, [(nb.pod("e", {"app": "a"}), 0)], services=[service({"app": "a"})])
    one, state = class_of(table, nb.pod("w", {"app": "a"})), CycleState()
    assert plugin.prefilter(one, table.all_nodes_view(), state).status.code is Code.SKIP
    assert plugin.prescore(one, table.all_nodes_view(), state).code is Code.SUCCESS
    scores = plugin.normalize(
        plugin.score(one, table.all_nodes_view(), state), one, table.all_nodes_view(), state
    )
    assert scores[2] > scores[1] > scores[0]
    assert plugin.prescore(class_of(table, nb.pod("w")), table.all_nodes_view(), state).code is Code.SKIP


@pytest.mark.parametrize(
    "args, message",
    [
        (
            {
                "defaultConstraints": [
                    {"topologyKey": "a", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
                ]
            },
            "must be empty when defaultingType is System",
        ),
        ({"defaultingType": "Lists"}, "'System' or 'List'"),
        (
            {
                "defaultingType": "List",
                "defaultConstraints": [
                    {"topologyKey": "a", "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule"}
                    for skew in (1, 2)
                ],
            },
            "a is stated more than once",
        ),
        (
            {
                "defaultingType": "List",
                "defaultConstraints": [
                    {"topologyKey": "a", "maxSkew": 0, "whenUnsatisfiable": "DoNotSchedule"}
                ],
            },
            "greater than or equal to 1",
        ),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_invalid_arguments_are_refused(args, message):
    with pytest.raises(ValidationError, match=message):
        PodTopologySpread.Args.model_validate(args)
