"""The labels that default spreading constraints look at: those that Services and workloads select pods by."""

from typing import Any

import msgspec
import pytest

from batchsched.api.core.cluster_objects import ReplicaSet, ReplicationController, Service, StatefulSet
from batchsched.api.snapshot import Snapshot
from batchsched.framework.plugin_support.default_selectors import default_selector_label_keys

EXPRESSION = {"matchExpressions": [{"key": "b", "operator": "Exists"}]}


def selecting(kind: type, selector: Any) -> Any:
    return msgspec.convert({"metadata": {"name": "x"}, "spec": {"selector": selector}}, kind)


@pytest.mark.parametrize(
    "field, kind, selector, keys",
    [
        ("services", Service, {"a": "1"}, {"a"}),
        ("services", Service, None, set()),
        ("replication_controllers", ReplicationController, {"a": "1"}, {"a"}),
        ("replication_controllers", ReplicationController, None, set()),
        ("replica_sets", ReplicaSet, {"matchLabels": {"a": "1"}, **EXPRESSION}, {"a", "b"}),
        ("stateful_sets", StatefulSet, EXPRESSION, {"b"}),
        ("stateful_sets", StatefulSet, None, set()),
    ],
)
def test_default_label_keys_are_those_of_all_services_and_workloads(field, kind, selector, keys):
    objects: dict[str, Any] = {field: (selecting(kind, selector),)}
    snapshot = Snapshot(**objects)
    assert default_selector_label_keys(snapshot) == keys
