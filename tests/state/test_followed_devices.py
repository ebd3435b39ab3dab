"""Sessions that follow claims, devices and NUMA zones change by change decide as new sessions over a snapshot."""

import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.device import (
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from batchsched.api.core.pod import Pod
from batchsched.api.decision import to_json
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.session.session import Session
from batchsched.state.cluster_state import ClusterState
from batchsched.state.up_to_date_scheduler import UpToDateScheduler
from tests.devices.objects import DRIVER, claim, device_class, gpu, request, slice_of
from tests.plugins.node_resource_topology.topologies import topology
from tests.session.scenario import NOW, gang, nodes
from tests.session.test_claims import gang_with_claims, sharing
from tests.session.test_numa_zones import guaranteed_gang
from tests.session.test_properties import WAYS
from tests.state.objects import told

pytestmark = pytest.mark.properties

NODES = 3
RESOURCE = "example.com/gpu"


class History:
    """Random events of claims, devices, NUMA zones and pods, and the schedulers that follow them."""

    def __init__(self, seed: int, settings: Profile) -> None:
        self.rng = random.Random(seed)
        self.settings = settings
        self.cache = ClusterState()
        self.made = 0
        self.feed = UpToDateScheduler(self.cache, self.make)
        self.session: Session | None = None
        for one in nodes(NODES):
            self.cache.put(one)
        self.cache.put(self.some_class())
        for at in range(NODES):
            self.cache.put(self.some_slice(at))
            self.cache.put(self.some_zones(at))
        plain = gang("plain", 2, requests={"cpu": 1, RESOURCE: 1})
        for known in (*plain.pod_groups, *plain.pods):  # all resources are known from the beginning
            self.cache.put(known)
        self.coming: list[Any] = []
        for part in self.some_gangs():
            self.coming += [*part.pod_groups, *part.resource_claims, *part.pods]
        self.rng.shuffle(self.coming)

    def make(self, snapshot: Snapshot) -> Session:
        self.made += 1
        before, self.session = self.session, Session(snapshot, self.settings)
        if before is not None:
            self.copy_reservations(before, self.session)
        return self.session

    def copy_reservations(self, before: Session, session: Session) -> None:
        session.node_table.reserved_volumes_and_devices.copy_reservations_of_pods_being_bound(
            before.node_table.reserved_volumes_and_devices,
            self.cache.is_assumed_or_being_bound,
            self.cache.is_bound,
        )

    def some_gangs(self) -> list[Snapshot]:
        rng = self.rng
        parts = [
            gang_with_claims("own", 3, rng.randint(1, 3), request(count=rng.randint(1, 2))),
            gang_with_claims("more", 2, 1, request(allocationMode="All", count=0)),
            guaranteed_gang("aligned", 2, cpu=rng.randint(1, 4), minimum=1),
        ]
        shared = gang("shared", 2, requests={"cpu": 1})
        both = claim("both", request(), metadata={"namespace": "team"})
        users = tuple(sharing(one, "both") for one in shared.pods)
        return [*parts, replace(shared, pods=users, resource_claims=(both,))]

    def some_class(self) -> Any:
        expressions = [[], [f'device.attributes["{DRIVER}"].model == "h100"']]
        spec = {"extendedResourceName": RESOURCE} if self.rng.random() < 0.7 else {}
        return device_class("gpu", *self.rng.choice(expressions), **spec)

    def some_slice(self, at: int) -> Any:
        rng = self.rng
        models = [rng.choice(["h100", "h100", "a100"]) for _ in range(rng.randint(0, 3))]
        devices = [gpu(f"gpu-{n}", attributes={"model": {"string": model}}) for n, model in enumerate(models)]
        if rng.random() < 0.15:
            return slice_of(f"n{at}", devices, allNodes=True)
        return slice_of(f"n{at}", devices)

    def some_zones(self, at: int) -> Any:
        zones = [
            {"cpu": str(self.rng.choice([1, 2, 4])), "memory": "64Gi"} for _ in range(self.rng.randint(1, 2))
        ]
        if self.rng.random() < 0.2:
            zones[0]["example.com/nic"] = "1"
        return topology(f"n{at}", *zones)

    def step(self) -> None:
        if self.coming and self.rng.random() < 0.6:
            self.cache.put(self.coming.pop())
        moves = [
            *[self.change_devices, self.change_zones, self.change_claim, self.change_claim],
            *[self.write_own_claims, self.end_binding, self.remove_pod, self.decide, self.decide],
        ]
        self.rng.choice(moves)()

    def change_devices(self) -> None:
        rng, snapshot = self.rng, self.cache.snapshot()
        kind = rng.choice(["slice", "slice", "gone", "class", "taint"])
        if kind == "slice":
            self.cache.put(self.some_slice(rng.randrange(NODES)))
        elif kind == "gone" and snapshot.resource_slices:
            self.cache.remove(rng.choice(snapshot.resource_slices))
        elif kind == "class":
            self.cache.put(self.some_class())
        elif kind == "taint":
            self.change_taint_rule(snapshot)

    def change_taint_rule(self, snapshot: Snapshot) -> None:
        if snapshot.device_taint_rules:
            self.cache.remove(snapshot.device_taint_rules[0])
            return
        taint = {"key": "broken", "effect": "NoSchedule"}
        selector = {"driver": DRIVER, "pool": f"n{self.rng.randrange(NODES)}"}
        rule = {"metadata": {"name": "rule"}, "spec": {"deviceSelector": selector, "taint": taint}}
        self.cache.put(msgspec.convert(rule, DeviceTaintRule))

    def change_zones(self) -> None:
        topologies = self.cache.snapshot().node_resource_topologies
        if topologies and self.rng.random() < 0.3:
            self.cache.remove(self.rng.choice(topologies))
        else:
            self.cache.put(self.some_zones(self.rng.randrange(NODES)))

    def change_claim(self) -> None:
        """What others do with a claim: they allocate or release it, reserve it, delete it or create it again."""
        rng, claims = self.rng, self.cache.snapshot().resource_claims
        if not claims:
            return
        found, kind = rng.choice(claims), rng.choice(["allocate", "release", "label", "delete", "replace"])
        if kind == "delete":
            self.cache.remove(found)
            self.coming.append(msgspec.structs.replace(found, status=ResourceClaimStatus()))
        elif kind == "allocate":
            device = {"request": "r", "driver": DRIVER, "pool": f"n{rng.randrange(NODES)}", "device": "gpu-0"}
            status = {"allocation": {"devices": {"results": [device]}}}
            self.cache.put(
                msgspec.structs.replace(found, status=msgspec.convert(status, ResourceClaimStatus))
            )
        elif kind == "release":
            self.cache.put(msgspec.structs.replace(found, status=ResourceClaimStatus()))
        elif kind == "label":
            metadata = msgspec.structs.replace(found.metadata, labels={"v": str(rng.random())})
            self.cache.put(msgspec.structs.replace(found, metadata=metadata))
        else:
            changed = told(found, uid=f"{found.metadata.uid}-{rng.random()}")
            self.cache.put(msgspec.structs.replace(changed, status=ResourceClaimStatus()))

    def write_own_claims(self) -> None:
        """Show what the binding cycle of an assumed pod has written."""
        assumed = self.cache.assumed_pods()
        if not assumed or self.session is None:
            return
        pod: Pod = self.cache.get("pods", self.rng.choice(assumed).pod)
        devices = self.session.node_table.device_ledger.devices_reserved_for_pod(pod.key, pod.metadata.uid)
        for allocated in devices.allocations if devices is not None else ():
            found: ResourceClaim | None = self.cache.get("resource_claims", allocated.claim)
            if found is not None and found.status.allocation is None:
                consumer = ResourceClaimConsumerReference(
                    resource="pods", name=pod.name, uid=pod.metadata.uid
                )
                status = ResourceClaimStatus(allocation=allocated.allocation, reserved_for=(consumer,))
                self.cache.put(msgspec.structs.replace(found, status=status))

    def end_binding(self) -> None:
        assumed = self.cache.assumed_pods()
        if not assumed:
            return
        ending = self.rng.choice(assumed)
        shown: Pod = self.cache.get("pods", ending.pod)
        if self.rng.random() < 0.7:
            self.cache.put(msgspec.structs.replace(shown, spec=msgspec.structs.replace(shown.spec)))
        else:
            if self.session is not None:
                self.session.node_table.device_ledger.release_reserved_devices(ending.pod)
            self.cache.forget_assumption(ending.pod, ending.assumption.node, shown.metadata.uid)

    def remove_pod(self) -> None:
        pods = self.cache.snapshot().pods
        if pods and self.rng.random() < 0.5:
            self.cache.remove(self.rng.choice(pods))

    def decide(self) -> None:
        """Decide as a profile does: all that is placed is assumed, or its devices are released again."""
        decision = self.updated_session().decide(NOW, 0)
        for placed in decision.assignments:
            pod: Pod = self.cache.get("pods", placed.pod_key)
            if self.rng.random() < 0.3 or not self.cache.assume_pod(
                pod.key, placed.node, NOW, pod.metadata.uid
            ):
                self.updated_session().node_table.device_ledger.release_reserved_devices(pod.key)

    def updated_session(self) -> Session:
        self.feed.updated_scheduler()
        assert self.session is not None
        self.session.node_table.device_ledger.release_reservations_of_pods_not_being_bound(
            self.cache.is_assumed_or_being_bound, self.cache.is_bound
        )
        return self.session


@pytest.mark.parametrize("way", WAYS)
@given(seed=st.integers(0, 2**32 - 1))
def test_sessions_that_follow_devices_decide_as_those_of_a_snapshot(way: str, seed: int):
    history = History(seed, WAYS[way])
    for _ in range(25):
        history.step()
    followed = history.updated_session()
    new = Session(history.cache.snapshot(), WAYS[way])
    history.copy_reservations(followed, new)
    ledger, built = followed.node_table.device_ledger, new.node_table.device_ledger
    assert ledger.uses == built.uses
    assert ledger.claims == built.claims
    assert ledger.list_reserved_devices() == built.list_reserved_devices()
    assert to_json(followed.decide(NOW, 0)) == to_json(new.decide(NOW, 0))
    assert history.made <= 1
