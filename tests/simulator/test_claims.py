"""Simulated pods get claims from their templates, and their devices are free when they end."""

from dataclasses import replace

import msgspec

from batchsched.api.core.device import ResourceClaimTemplate
from batchsched.api.core.pod import PodResourceClaim
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.lab.simulation import simulate_under_profile
from batchsched.simulator.cluster import workload_with_claims
from batchsched.simulator.run import RunSettings
from batchsched.simulator.workload import (
    NAMESPACE,
    NodeOutage,
    TraceGang,
    Workload,
    create_nodes,
    create_pod_spec,
    create_rigid_arrival,
)
from tests.devices.objects import claim, device_class, gpu, slice_of

TEMPLATE = msgspec.convert(
    {
        "metadata": {"name": "gpu", "namespace": NAMESPACE},
        "spec": {"spec": msgspec.to_builtins(claim().spec)},
    },
    ResourceClaimTemplate,
)
PROFILES = (Profile(), Profile.model_validate({"solver": {"enabled": False}}))


def workload(rows, nodes=1, devices=2, entry=None, outages=()) -> Workload:
    """Gangs of (submit, runtime, size), each pod with one device; nodes have room for many pods."""
    entries = (entry or PodResourceClaim(name="gpu", resource_claim_template_name="gpu"),)
    spec = msgspec.structs.replace(create_pod_spec({"cpu": "1"}), resource_claims=entries)
    made = create_nodes(nodes, {"cpu": "64"})
    arrivals = tuple(
        create_rigid_arrival(TraceGang(f"g{number}", ((spec, size),), runtime), submit, runtime)
        for number, (submit, runtime, size) in enumerate(rows)
    )
    slices = tuple(slice_of(node.name, [gpu(f"gpu-{at}") for at in range(devices)]) for node in made)
    shared = claim("shared", metadata={"namespace": NAMESPACE})
    cluster = Snapshot(
        nodes=made,
        resource_slices=slices,
        device_classes=(device_class(),),
        resource_claim_templates=(TEMPLATE,),
        resource_claims=(shared,),
    )
    return Workload("devices", cluster, arrivals, outages)


def spans(made: Workload, profile: Profile = PROFILES[0]) -> list[tuple[int | None, int | None]]:
    result = simulate_under_profile(made, profile, RunSettings("test"))
    return [(one.started, one.ended) for one in result.gangs]


def test_a_gang_waits_until_the_devices_of_another_one_are_free():
    for profile in PROFILES:
        assert spans(workload([(0, 10, 2), (1, 5, 2)]), profile) == [(0, 10), (10, 15)]


def test_gangs_share_the_devices_of_a_node():
    assert spans(workload([(0, 10, 1), (1, 5, 1), (2, 5, 1)])) == [(0, 10), (1, 6), (6, 11)]


def test_a_gang_that_lost_its_node_gets_devices_of_another_node():
    lost = NodeOutage("node-0", 4, 100)
    assert spans(workload([(0, 10, 2)], nodes=2, outages=(lost,))) == [(4, 14)]


def test_pods_that_share_a_claim_run_together_on_one_device():
    entry = PodResourceClaim(name="gpu", resource_claim_name="shared")
    assert spans(workload([(0, 10, 3), (1, 5, 2)], devices=1, entry=entry)) == [(0, 10), (1, 6)]


def test_a_gang_that_needs_more_devices_than_there_are_never_starts():
    assert spans(workload([(0, 10, 3), (1, 5, 2)])) == [(None, None), (1, 6)]


def test_a_workload_without_claims_is_unchanged():
    made = workload([(0, 10, 2)])
    arrivals = tuple(
        replace(
            one,
            pods=tuple(
                msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resource_claims=None))
                for pod in one.pods
            ),
        )
        for one in made.arrivals
    )
    bare = replace(made, arrivals=arrivals)
    assert workload_with_claims(bare) is bare
