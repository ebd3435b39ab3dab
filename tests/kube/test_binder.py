"""Volumes and claims are written as kube-scheduler writes them, and nobody's volume is given away twice."""

import asyncio
import itertools

import pytest

from batchsched.errors import BindFailed
from batchsched.kube.binder import SELECTED_NODE, ApiBinder
from batchsched.ports.binder import NodeSelection, VolumeBinding
from tests.kube.test_writer import writing

VOLUMES = "/api/v1/persistentvolumes"
NUMBERS = itertools.count(1)


@pytest.fixture
def volume(plane):
    """A volume that is nobody's."""
    name = f"disk-{next(NUMBERS)}"
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/none"}}
    plane.admin.create(VOLUMES, {"metadata": {"name": name}, "spec": spec})
    yield name
    plane.admin.merge(f"{VOLUMES}/{name}", {"metadata": {"finalizers": None}})
    plane.admin.delete(f"{VOLUMES}/{name}")


def claim(namespace, name):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"metadata": {"name": name}, "spec": spec}
    return namespace.api.create(namespace.path("persistentvolumeclaims"), body)["metadata"]["uid"]


async def test_a_volume_is_given_to_one_claim_and_to_no_other(plane, namespace, volume):
    first, second = (
        VolumeBinding(volume, namespace.name, name, claim(namespace, name)) for name in ("one", "two")
    )
    async with writing(plane) as writer:
        binder = ApiBinder(writer, lambda _: True)
        await binder.bind_volume(first)
        await binder.bind_volume(first)
        with pytest.raises(BindFailed, match=f"is already bound to {namespace.name}/one"):
            await binder.bind_volume(second)
    assert plane.admin.get(f"{VOLUMES}/{volume}")["spec"]["claimRef"]["uid"] == first.uid


async def test_a_node_is_selected_for_a_claim(plane, namespace):
    claim(namespace, "one")
    async with writing(plane) as writer:
        await ApiBinder(writer, lambda _: True).select_node(NodeSelection(namespace.name, "one", "node-0"))
    found = plane.admin.get(namespace.path("persistentvolumeclaims", "one"))
    assert found["metadata"]["annotations"][SELECTED_NODE] == "node-0"


async def test_claims_are_waited_for_until_they_are_bound_or_it_takes_too_long(plane):
    bound: set[str] = set()
    async with writing(plane) as writer:
        binder = ApiBinder(writer, bound.__contains__, poll=0.01)
        assert not await binder.claims_bound(["a/one"], 0.05)
        asyncio.get_running_loop().call_later(0.05, bound.add, "a/one")
        assert await binder.claims_bound(["a/one"], 5)
