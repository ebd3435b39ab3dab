"""A write is carried out once, and only while this replica leads."""

import asyncio
import itertools
import json
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

import msgspec
import pytest

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import Pod
from batchsched.api.core.volume import PersistentVolumeClaim, PersistentVolumeClaimStatus
from batchsched.errors import ApiError, BindFailed, NotLeading
from batchsched.kube import writer as module
from batchsched.kube.claim_writer import ResourceClaimWriter
from batchsched.kube.connection import LEASES, POD_RESOURCE, Connection
from batchsched.kube.credentials import CredentialsReader
from batchsched.kube.writer import SELECTED_NODE, ApiBinder, VolumeClaims, Writer
from batchsched.ports.cluster import Binding, PersistentVolumeBinding, VolumeClaimSelectedNode
from tests.controlplane.fixtures import eventually
from tests.controlplane.plane import ApiFault
from tests.controlplane.proxy import Ending, hung, lost, page, refused, status
from tests.kube.virtual import Hurried

NO_CLAIMS = cast("ResourceClaimWriter", None)
UNSEEN = VolumeClaims(lambda _: None, lambda _: None)
BINDING = {"method": "POST", "path": "/binding$"}


@dataclass
class Until:
    """A fence that falls at a time of the monotonic clock."""

    end: float

    def remaining_seconds(self):
        return self.end - time.monotonic()


@asynccontextmanager
async def writing(plane, network=None, clock=None, **more):
    config = plane.kubeconfig(server=network.url if network else None)
    clock = clock or Hurried()
    async with Connection(CredentialsReader(config), clock) as connection:
        yield Writer(connection, clock, **more)


@pytest.fixture
def lone(namespace):
    """A pod that waits, and two nodes."""
    namespace.nodes(2)
    return decoded(namespace.pod("lone"))


def decoded(manifest):
    return msgspec.convert(manifest, Pod)


def node_of(namespace, name="lone"):
    return namespace.get(name)["spec"].get("nodeName")


async def test_second_binding_to_the_same_node_succeeds(plane, namespace, lone):
    async with writing(plane) as writer:
        await writer.bind(Binding.from_pod_and_node(lone, "node-0"))
        await writer.bind(Binding.from_pod_and_node(lone, "node-0"))
        with pytest.raises(BindFailed, match="already bound to node-0"):
            await writer.bind(Binding.from_pod_and_node(lone, "node-1"))
    assert node_of(namespace) == "node-0"


async def test_deleted_pod_and_another_pod_of_its_name_are_not_bound(plane, namespace, lone):
    plane.admin.delete(namespace.path("pods", "lone"))
    async with writing(plane) as writer:
        with pytest.raises(BindFailed, match="not found"):
            await writer.bind(Binding.from_pod_and_node(lone, "node-0"))
        namespace.pod("lone")
        with pytest.raises(BindFailed, match="another pod has its name"):
            await writer.bind(Binding.from_pod_and_node(lone, "node-0"))
    assert node_of(namespace) is None


@pytest.mark.parametrize("ending", [Ending.RESET, Ending.STALL], ids=["reset", "hung"])
async def test_bind_without_an_answer_is_verified_by_a_read(
    plane, proxy, namespace, lone, monkeypatch, ending
):
    monkeypatch.setattr(module, "_DEADLINE_SECONDS", 0.5)
    proxy.on(lost(ending), **BINDING, count=1)
    async with writing(plane, proxy) as writer:
        await writer.bind(Binding.from_pod_and_node(lone, "node-0"))
    assert node_of(namespace) == "node-0"
    assert proxy.count("POST", "/binding$") == 1


@pytest.mark.parametrize(
    "fault",
    [refused(), hung(), page(502), status(500), status(503), status(504)],
    ids=["refused", "hung", "502", "500", "503", "504"],
)
async def test_a_bind_that_was_not_carried_out_is_sent_again(
    plane, proxy, namespace, lone, monkeypatch, fault
):
    monkeypatch.setattr(module, "_DEADLINE_SECONDS", 0.5)
    proxy.on(fault, **BINDING, count=2)
    async with writing(plane, proxy) as writer:
        await writer.bind(Binding.from_pod_and_node(lone, "node-0"))
    assert node_of(namespace) == "node-0"
    assert proxy.count("POST", "/binding$") == 3


async def test_bind_is_sent_again_if_the_pod_cannot_be_read(plane, proxy, namespace, lone):
    proxy.on(lost(), **BINDING, count=1)
    proxy.on(page(502), method="GET", count=1)
    async with writing(plane, proxy) as writer:
        await writer.bind(Binding.from_pod_and_node(lone, "node-0"))
    assert node_of(namespace) == "node-0"


@pytest.mark.parametrize(
    "fault", [refused(), status(500), status(403, "Forbidden")], ids=["refused", "500", "403"]
)
async def test_executed_bind_succeeds_even_if_the_pod_is_unreadable_for_long(
    plane, proxy, namespace, lone, fault
):
    """As when the API server ends in the middle of it, and refuses all at first when it comes back."""
    proxy.on(lost(), **BINDING, count=1)
    proxy.on(fault, **BINDING)
    reads = proxy.on(fault, method="GET", count=8)
    async with writing(plane, proxy) as writer:
        await writer.bind(Binding.from_pod_and_node(lone, "node-0"))
    assert reads.hits == 8
    assert node_of(namespace) == "node-0"


async def test_a_refused_bind_after_one_without_an_answer_fails_once_the_pod_is_read_as_pending(
    plane, proxy, lone
):
    proxy.on(refused(), **BINDING, count=1)
    proxy.on(refused(), method="GET", count=1)
    proxy.on(status(403, "Forbidden"), **BINDING)
    async with writing(plane, proxy) as writer:
        with pytest.raises(BindFailed, match="403"):
            await writer.bind(Binding.from_pod_and_node(lone, "node-0"))
    assert proxy.count("POST") == 2


async def test_a_bind_that_never_gets_through_fails(plane, proxy, namespace, lone):
    proxy.on(status(500), **BINDING)
    async with writing(plane, proxy) as writer:
        with pytest.raises(BindFailed, match="no answer to 4 requests"):
            await writer.bind(Binding.from_pod_and_node(lone, "node-0"))
    assert node_of(namespace) is None


async def test_a_bind_that_is_forbidden_fails_at_once(plane, proxy, lone):
    proxy.on(status(403, "Forbidden"), **BINDING)
    async with writing(plane, proxy) as writer:
        with pytest.raises(BindFailed, match="403"):
            await writer.bind(Binding.from_pod_and_node(lone, "node-0"))
    assert proxy.count() == 1


@pytest.mark.parametrize("code", [429, 503, 504])
async def test_writer_respects_retry_after_of_a_busy_server(plane, proxy, namespace, lone, code):
    proxy.on(status(code, "TooManyRequests", retry_after=7), count=2)
    clock = Hurried()
    async with writing(plane, proxy, clock) as writer:
        await writer.bind(Binding.from_pod_and_node(lone, "node-0"))
    assert node_of(namespace) == "node-0"
    assert [wait >= 7 for wait in clock.slept if wait != 30.0] == [True, True]


async def test_a_server_that_stays_too_busy_is_given_up(plane, proxy, lone, monkeypatch):
    monkeypatch.setattr(module, "_BUSY_SECONDS", 0.1)
    proxy.on(status(429, "TooManyRequests", retry_after=1))
    async with writing(plane, proxy) as writer:
        with pytest.raises(BindFailed, match="429"):
            await writer.bind(Binding.from_pod_and_node(lone, "node-0"))
    assert proxy.count() > 2


class Counting:
    """A connection that counts the requests in flight."""

    def __init__(self):
        self.now = self.most = 0

    async def request(self, method, path, **more):
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.001)
        self.now -= 1
        if path.endswith("/binding"):
            raise ApiError(500, "InternalError", "")
        return json.dumps({"spec": {"nodeName": "node-0"}}).encode()


async def test_requests_in_flight_including_verifications_are_limited(namespace):
    counting = Counting()
    writer = Writer(cast(Connection, counting), Hurried(), in_flight=4)
    pods = [msgspec.convert({"metadata": {"name": f"p{number}"}}, Pod) for number in range(50)]
    await asyncio.gather(*(writer.bind(Binding.from_pod_and_node(pod, "node-0")) for pod in pods))
    assert counting.most == 4


class Recording:
    """A connection that answers at once and records the paths of the requests in order."""

    def __init__(self):
        self.paths = []

    async def request(self, method, path, **more):
        await asyncio.sleep(0)
        self.paths.append(path)
        return b"{}"


async def test_binding_of_one_namespace_does_not_wait_for_all_bindings_of_another():
    recording = Recording()
    writer = Writer(cast(Connection, recording), Hurried(), in_flight=4)
    flood = [pod_in("flood", f"p{number}") for number in range(100)]
    await asyncio.gather(
        *(writer.bind(Binding.from_pod_and_node(pod, "node-0")) for pod in [*flood, pod_in("team", "p")])
    )
    assert len(recording.paths) == 101
    assert [path for path in recording.paths[:10] if "/team/" in path]


async def test_cancelled_binding_leaves_its_slot_to_the_others():
    recording = Recording()
    writer = Writer(cast(Connection, recording), Hurried(), in_flight=1)
    bindings = [
        asyncio.create_task(writer.bind(Binding.from_pod_and_node(pod_in("team", f"p{number}"), "node-0")))
        for number in range(6)
    ]
    for turns in range(3):
        await asyncio.sleep(0)
        bindings[turns].cancel()
        bindings[turns + 1].cancel()
    await asyncio.wait_for(asyncio.gather(*bindings[4:]), 5)
    assert [path.split("/")[-2] for path in recording.paths[-2:]] == ["p4", "p5"]


async def test_writer_is_idle_when_all_its_requests_were_answered():
    recording = Recording()
    writer = Writer(cast(Connection, recording), Hurried(), in_flight=2)
    await writer.wait_until_idle()
    bindings = [
        asyncio.create_task(writer.bind(Binding.from_pod_and_node(pod_in("team", f"p{number}"), "node-0")))
        for number in range(6)
    ]
    await asyncio.sleep(0)
    await asyncio.wait_for(writer.wait_until_idle(), 5)
    assert len(recording.paths) == 6
    await asyncio.gather(*bindings)


def pod_in(namespace, name):
    return msgspec.convert({"metadata": {"namespace": namespace, "name": name}}, Pod)


# The fence


async def test_no_request_is_sent_after_the_fence_is_closed(plane, proxy, lone):
    async with writing(plane, proxy, fence=Until(0)) as writer:
        with pytest.raises(NotLeading):
            await writer.bind(Binding.from_pod_and_node(lone, "node-0"))
        with pytest.raises(NotLeading):
            await writer.evict(lone)
    assert proxy.count() == 0


async def test_a_request_does_not_outlive_the_fence_and_is_not_sent_again(plane, proxy, lone):
    proxy.on(hung(), **BINDING)
    begun = time.monotonic()
    async with writing(plane, proxy, fence=Until(begun + 0.4)) as writer:
        with pytest.raises(NotLeading):
            await writer.bind(Binding.from_pod_and_node(lone, "node-0"))
    assert time.monotonic() - begun < 2
    assert proxy.count("POST") == 1


async def test_a_fence_that_falls_while_the_server_is_busy_ends_it(plane, proxy, lone):
    proxy.on(status(429, "TooManyRequests", retry_after=20), **BINDING)
    async with writing(plane, proxy, fence=Until(time.monotonic() + 0.3)) as writer:
        with pytest.raises(NotLeading):
            await writer.bind(Binding.from_pod_and_node(lone, "node-0"))
    assert proxy.count("POST") == 1


# Other writes


async def test_eviction_of_a_deleted_or_replaced_pod_succeeds(plane, namespace, lone):
    async with writing(plane) as writer:
        await writer.evict(lone)
        assert gone(namespace, "lone")
        await writer.evict(lone)
        namespace.pod("lone")
        await writer.evict(lone)
    assert namespace.get("lone")["metadata"]["uid"] != lone.metadata.uid


def gone(namespace, name):
    try:
        return not namespace.get(name)
    except ApiFault:
        return True


async def test_eviction_forbidden_by_a_budget_is_not_retried(plane, proxy, namespace, lone):
    namespace.pod("guarded", labels={"app": "db"})
    namespace.bind("guarded", "node-0")
    eventually(lambda: namespace.get("guarded")["status"]["phase"] == "Running")
    selector = {"matchLabels": {"app": "db"}}
    body = {"metadata": {"name": "db"}, "spec": {"minAvailable": 1, "selector": selector}}
    plane.admin.create(namespace.path("poddisruptionbudgets", group="policy/v1"), body)
    # The API server knows budgets through a cache of its own, which may be a moment behind.
    await asyncio.sleep(0.3)
    async with writing(plane, proxy) as writer:
        with pytest.raises(ApiError, match="429"):
            await writer.evict(decoded(namespace.get("guarded")))
    assert proxy.count("POST") == 1


async def test_objects_are_created_patched_and_deleted(plane, namespace):
    where = namespace.name
    body = {"metadata": {"name": "one"}, "spec": {"holderIdentity": "ada"}}
    async with writing(plane) as writer:
        made = json.loads(await writer.create(LEASES, where, body))
        changed = {"spec": {"holderIdentity": "bob"}}
        assert json.loads(await writer.patch(LEASES, where, "one", changed))["spec"] == changed["spec"]
        await writer.delete(LEASES, where, "one", uid="another")
        await writer.delete(LEASES, where, "one", uid=made["metadata"]["uid"])
        await writer.delete(LEASES, where, "one")
        with pytest.raises(ApiError, match="404"):
            await writer.patch(LEASES, where, "one", changed)


async def test_a_subresource_is_patched_by_its_name(plane, namespace, lone):
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    async with writing(plane) as writer:
        await writer.patch(
            POD_RESOURCE, namespace.name, "lone", {"status": {"conditions": [condition]}}, "status"
        )
    found = namespace.get("lone")["status"]["conditions"]
    assert [(one["reason"], one["message"]) for one in found] == [("Unschedulable", "no room")]


VOLUMES = "/api/v1/persistentvolumes"
NUMBERS = itertools.count(1)


@pytest.fixture
def volume(plane):
    """A volume that no claim is bound to."""
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


async def test_volume_is_bound_to_one_claim_only(plane, namespace, volume):
    first, second = (
        PersistentVolumeBinding(volume, namespace.name, name, claim(namespace, name))
        for name in ("one", "two")
    )
    async with writing(plane) as writer:
        binder = ApiBinder(writer, NO_CLAIMS, UNSEEN)
        await binder.bind_volume(first)
        await binder.bind_volume(first)
        with pytest.raises(BindFailed, match=f"is already bound to {namespace.name}/one"):
            await binder.bind_volume(second)
    assert plane.admin.get(f"{VOLUMES}/{volume}")["spec"]["claimRef"]["uid"] == first.uid


@pytest.mark.parametrize("name", ["one", "two"])
async def test_volume_that_a_user_reserves_by_name_is_bound_to_the_named_claim_only(
    plane, namespace, volume, name
):
    reference = {"namespace": namespace.name, "name": "one"}
    plane.admin.merge(f"{VOLUMES}/{volume}", {"spec": {"claimRef": reference}})
    wanted = PersistentVolumeBinding(volume, namespace.name, name, claim(namespace, name))
    async with writing(plane) as writer:
        binder = ApiBinder(writer, NO_CLAIMS, UNSEEN)
        if name == "one":
            await binder.bind_volume(wanted)
        else:
            with pytest.raises(BindFailed, match=f"is reserved for {namespace.name}/one"):
                await binder.bind_volume(wanted)
    stored = plane.admin.get(f"{VOLUMES}/{volume}")["spec"]["claimRef"]
    assert (stored["name"], stored.get("uid")) == ("one", wanted.uid if name == "one" else None)


async def test_pods_that_share_a_claim_bind_its_volume_at_the_same_time(plane, namespace, volume):
    wanted = PersistentVolumeBinding(volume, namespace.name, "one", claim(namespace, "one"))
    async with writing(plane) as writer:
        binder = ApiBinder(writer, NO_CLAIMS, UNSEEN)
        await asyncio.gather(*(binder.bind_volume(wanted) for _ in range(8)))
    assert plane.admin.get(f"{VOLUMES}/{volume}")["spec"]["claimRef"]["uid"] == wanted.uid


async def test_a_node_is_selected_for_a_claim(plane, namespace):
    claim(namespace, "one")
    handled: list[bytes] = []
    async with writing(plane) as writer:
        binder = ApiBinder(writer, NO_CLAIMS, VolumeClaims(handled.append, lambda _: None))
        for _ in range(2):
            await binder.write_selected_node(VolumeClaimSelectedNode(namespace.name, "one", "node-0"))
    found = plane.admin.get(namespace.path("persistentvolumeclaims", "one"))
    assert found["metadata"]["annotations"][SELECTED_NODE] == "node-0"
    assert [json.loads(raw)["metadata"]["resourceVersion"] for raw in handled] == [
        found["metadata"]["resourceVersion"]
    ] * 2


async def test_pods_on_two_nodes_do_not_select_both_for_a_claim_that_they_share(plane, namespace):
    claim(namespace, "one")
    selections = [VolumeClaimSelectedNode(namespace.name, "one", node) for node in ("node-0", "node-1") * 4]
    async with writing(plane) as writer:
        binder = ApiBinder(writer, NO_CLAIMS, UNSEEN)
        answers = await asyncio.gather(
            *(binder.write_selected_node(selection) for selection in selections), return_exceptions=True
        )
    found = plane.admin.get(namespace.path("persistentvolumeclaims", "one"))
    selected = found["metadata"]["annotations"][SELECTED_NODE]
    for selection, answer in zip(selections, answers, strict=True):
        if selection.node == selected:
            assert answer is None
        else:
            assert isinstance(answer, BindFailed)
            assert f"selects the node {selected}" in str(answer)


def seen_claim(phase: str, node: str = "node-0") -> PersistentVolumeClaim:
    annotations = {SELECTED_NODE: node} if node else {}
    return PersistentVolumeClaim(
        metadata=ObjectMeta(namespace="a", name="one", annotations=annotations),
        status=PersistentVolumeClaimStatus(phase=phase),
    )


async def test_claims_bound_waits_until_all_are_bound_or_the_timeout():
    seen = {"a/one": seen_claim("Pending")}
    binder = ApiBinder(cast("Writer", None), NO_CLAIMS, VolumeClaims(lambda _: None, seen.get), poll=0.01)
    selections = [VolumeClaimSelectedNode("a", "one", "node-0")]
    assert not await binder.wait_for_bound_volume_claims(["a/one"], 0.05, selections)
    asyncio.get_running_loop().call_later(0.05, seen.update, {"a/one": seen_claim("Bound")})
    assert await binder.wait_for_bound_volume_claims(["a/one"], 5, selections)


@pytest.mark.parametrize(
    "present, problem",
    [
        (None, "a/one was deleted"),
        (seen_claim("Pending", node=""), "a/one no longer selects the node node-0"),
        (seen_claim("Bound", node="node-1"), "a/one selects the node node-1"),
    ],
    ids=["deleted", "reset", "other node"],
)
async def test_wait_for_claims_ends_as_soon_as_the_volume_will_not_be_provisioned(present, problem):
    seen = {"a/one": seen_claim("Pending")}
    binder = ApiBinder(cast("Writer", None), NO_CLAIMS, VolumeClaims(lambda _: None, seen.get), poll=0.01)
    wait = asyncio.create_task(
        binder.wait_for_bound_volume_claims(["a/one"], 600, [VolumeClaimSelectedNode("a", "one", "node-0")])
    )
    await asyncio.sleep(0.02)
    assert not wait.done()
    seen["a/one"] = present
    with pytest.raises(BindFailed, match=problem):
        await asyncio.wait_for(wait, 5)
