"""Pods with ResourceClaims in a cluster: devices are allocated before the binding, and released at the end."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane.devices import (
    DRIVER,
    GROUP,
    claim,
    claims,
    consumers,
    device_class,
    devices_of,
    publish,
    sharing,
    template,
    used,
    with_template,
)
from tests.controlplane.fixtures import Namespace, eventually, start
from tests.controlplane.plane import ControlPlane
from tests.e2e.running import all_bound, bound, condition, group, never, pods

ENDS = {"tests/ends": "Succeeded"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with the controller that creates and releases claims."""
    with start(tmp_path_factory.mktemp("claims")) as plane:
        plane.start_kwok()
        plane.install_definitions()
        plane.start_controller_manager("resourceclaim-controller", "garbage-collector-controller")
        device_class(plane.admin, extendedResourceName="example.com/gpu")
        yield plane


def offer(namespace: Namespace, nodes: int, devices: int) -> None:
    """Make nodes with devices."""
    for manifest in namespace.nodes(nodes):
        publish(namespace.api, manifest["metadata"]["name"], devices)


def end(namespace: Namespace, *names: str) -> None:
    """Let pods succeed."""
    for name in names:
        namespace.api.merge(namespace.path("pods", name), {"metadata": {"annotations": ENDS}})


def test_a_pod_with_a_claim_of_its_own_is_bound_with_its_device_and_releases_it(team):
    offer(team, 1, 1)
    template(team)
    team.pod("first", spec=with_template())
    eventually(lambda: "first" in bound(team))
    (first,) = claims(team)
    assert devices_of(first) == ["node-0/gpu-0"]
    assert consumers(first) == {"first"}
    assert "resource.kubernetes.io/delete-protection" in first["metadata"]["finalizers"]

    team.pod("second", spec=with_template())
    eventually(lambda: len(claims(team)) == 2)
    assert "second" not in bound(team)
    end(team, "first")
    eventually(lambda: "second" in bound(team))
    assert used(team).count("node-0/gpu-0") == 1


def make_gang(namespace: Namespace, name: str, count: int, spec: dict[str, Any]) -> None:
    group(namespace, name, count)
    namespace.pods(count, prefix=name, gang=name, spec=spec)


def test_every_pod_of_a_gang_gets_a_device_and_a_gang_that_lacks_one_gets_none(team):
    offer(team, 2, 2)
    template(team)
    make_gang(team, "bert", 4, with_template())
    all_bound(team, "bert", 4)
    assert sorted(used(team)) == ["node-0/gpu-0", "node-0/gpu-1", "node-1/gpu-0", "node-1/gpu-1"]

    make_gang(team, "gpt", 4, with_template())
    eventually(lambda: condition(team, "gpt-3").get("reason") == "Unschedulable")
    end(team, "bert-0", "bert-1", "bert-2")
    never(lambda: bound(team, "gpt"), 2.0)
    assert len(used(team)) == 1
    end(team, "bert-3")
    all_bound(team, "gpt", 4)
    assert len(set(used(team))) == len(used(team)) == 4


def test_pods_of_a_gang_share_a_claim_and_the_last_one_releases_it(team):
    offer(team, 2, 1)
    claim(team, "shared")
    make_gang(team, "bert", 4, sharing("shared"))
    places = all_bound(team, "bert", 4)
    (shared,) = claims(team)
    assert consumers(shared) == places.keys()
    assert devices_of(shared) == [f"{place}/gpu-0" for place in set(places.values())]
    end(team, "bert-0", "bert-1", "bert-2")
    eventually(lambda: consumers(claims(team)[0]) == {"bert-3"})
    end(team, "bert-3")
    eventually(lambda: used(team) == [])


def test_a_class_serves_an_extended_resource_and_the_claim_that_is_created_gets_released(team):
    offer(team, 2, 2)
    team.gang("bert", 3, cpu=1, **{"example.com/gpu": 1})
    all_bound(team, "bert", 3)
    assert len(set(used(team))) == len(used(team)) == 3
    status = pods(team)["bert-0"]["status"]["extendedResourceClaimStatus"]
    (own,) = [one for one in claims(team) if one["metadata"]["name"] == status["resourceClaimName"]]
    assert consumers(own) == {"bert-0"}
    assert status["requestMappings"] == [
        {"containerName": "main", "requestName": "container-0-request-1", "resourceName": "example.com/gpu"}
    ]
    team.gang("gpt", 2, cpu=1, **{"example.com/gpu": 1})
    eventually(lambda: condition(team, "gpt-1").get("reason") == "Unschedulable")
    end(team, "bert-0", "bert-1", "bert-2")
    all_bound(team, "gpt", 2)
    assert len(set(used(team))) == len(used(team))


def abandoned(namespace: Namespace, name: str, device: str) -> None:
    """A claim as a leader leaves it that was killed before it bound the pod `name`."""
    (own,) = [one for one in claims(namespace) if owner(one) == name]
    pool, _, what = device.partition("/")
    result = {"request": "gpus", "driver": DRIVER, "pool": pool, "device": what}
    on_node = {"key": "metadata.name", "operator": "In", "values": [pool]}
    status = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [on_node]}]},
        },
        "reservedFor": [{"resource": "pods", "name": name, "uid": namespace.get(name)["metadata"]["uid"]}],
    }
    path = namespace.path("resourceclaims", own["metadata"]["name"], group=GROUP)
    namespace.api.merge(path, {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}})
    namespace.api.merge(f"{path}/status", {"status": status})


def owner(one: dict[str, Any]) -> str:
    name: str = one["metadata"]["ownerReferences"][0]["name"]
    return name


def test_devices_that_a_leader_left_are_used_if_the_gang_fits_with_them(team, scheduler):
    offer(team, 2, 2)
    template(team)
    team.pods(2, prefix="bert", gang="bert", spec=with_template())
    eventually(lambda: len(claims(team)) == 2)
    # A session without the PodGroup would refuse the pods, and free the devices.
    scheduler.stop()
    abandoned(team, "bert-0", "node-1/gpu-1")
    group(team, "bert", 2)
    scheduler.start()
    assert all_bound(team, "bert", 2)["bert-0"] == "node-1"
    assert "node-1/gpu-1" in used(team)


def test_devices_that_a_leader_left_are_freed_if_the_gang_does_not_fit_with_them(team):
    offer(team, 2, 2)
    template(team)
    elsewhere = {**with_template(), "nodeSelector": {"kubernetes.io/hostname": "node-0"}}
    team.pods(2, prefix="bert", gang="bert", spec=elsewhere)
    eventually(lambda: len(claims(team)) == 2)
    abandoned(team, "bert-0", "node-1/gpu-1")
    group(team, "bert", 2)
    all_bound(team, "bert", 2)
    assert sorted(used(team)) == ["node-0/gpu-0", "node-0/gpu-1"]


READY = "example.com/attached"


def prepare(namespace: Namespace, condition_type: str) -> None:
    """Report a condition of each allocated device, as its driver would."""
    for one in claims(namespace):
        results = one["status"]["allocation"]["devices"]["results"]
        stated = {"type": condition_type, "status": "True", "reason": "Done", "message": ""}
        stated["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        reported = [
            {name: each[name] for name in ("driver", "pool", "device")} | {"conditions": [stated]}
            for each in results
        ]
        path = namespace.path("resourceclaims", one["metadata"]["name"], group=GROUP)
        namespace.api.merge(f"{path}/status", {"status": {"devices": reported}})


def test_a_gang_is_bound_after_its_devices_are_attached_and_gets_others_if_that_fails(team):
    team.nodes(1)
    conditions = {"bindingConditions": [READY], "bindingFailureConditions": [f"{READY}-failed"]}
    publish(team.api, "node-0", 2, bindsToNode=True, **conditions)
    template(team)
    make_gang(team, "bert", 2, with_template())
    eventually(lambda: len(used(team)) == 2)
    never(lambda: bound(team), 1.5)
    before = {one["metadata"]["name"]: one["status"]["allocation"] for one in claims(team)}
    prepare(team, f"{READY}-failed")
    eventually(lambda: len(used(team)) == 2 and all_changed(team, before))
    assert bound(team) == {}
    prepare(team, READY)
    all_bound(team, "bert", 2)


def all_changed(namespace: Namespace, before: dict[str, Any]) -> bool:
    """Whether every claim was allocated again."""
    return all(
        one["status"].get("allocation") not in (None, before[one["metadata"]["name"]])
        for one in claims(namespace)
    )
