import gzip
import itertools
from dataclasses import replace

import msgspec
import pytest

from batchsched.api.core.cluster_objects import Namespace
from batchsched.api.core.device import AllocationResult
from batchsched.api.core.metadata import ObjectMeta, format_timestamp
from batchsched.api.core.pod import SCHEDULER_NAME, Pod, PodSpec, PodStatus
from batchsched.api.crd.podgroup import PodGroup, PodGroupSpec
from batchsched.api.pod_devices import PodDevices, ReservedClaimDevices, ReservedPodDevices
from batchsched.api.queue_access import DEFAULT_QUEUE_LABEL
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.errors import InvalidInput
from batchsched.lab.simulation import simulate_under_profile
from batchsched.simulator.cluster import SimulatedPodBuilder
from batchsched.simulator.run import RunSettings
from batchsched.simulator.workload import (
    NodeOutage,
    TraceGang,
    create_nodes,
    create_pod_spec,
    create_rigid_arrival,
    open_trace_file,
    sample_outages,
    split_gpus_into_pods,
    workload_of_snapshot,
)

SPEC = create_pod_spec({"cpu": "1"})
PROFILE = Profile.model_validate({"selection": "ordered", "policy": {"name": "fcfs"}})


def gang(name, size, runtime, at=0):
    return create_rigid_arrival(TraceGang(name, ((SPEC, size),), runtime), at, 0)


def snapshot(*gangs, slots=4, pods=()):
    return Snapshot(
        nodes=create_nodes(slots, {"cpu": "1"}),
        pod_groups=tuple(one.group for one in gangs),
        pods=(*(pod for one in gangs for pod in one.pods), *pods),
    )


def workload_of(cluster, start=1000.0, runtime=99, scheduler_name=SCHEDULER_NAME):
    return workload_of_snapshot(cluster, scheduler_name, start, runtime, "given")


def running(one, since, places):
    kubelet = SimulatedPodBuilder()
    pods = tuple(kubelet.running_pod(pod, node, since) for pod, node in zip(one.pods, places, strict=True))
    return replace(one, pods=pods)


def test_pending_gangs_arrive_at_the_start_and_run_for_their_expected_runtime():
    made = workload_of(snapshot(gang("a", 2, 50)))
    assert [(one.time, one.runtime, one.key) for one in made.arrivals] == [(1000, 50, "default/a")]


def test_gangs_without_expected_runtime_run_for_the_default():
    made = workload_of(snapshot(gang("a", 2, None)))
    assert made.arrivals[0].runtime == 99


def test_a_gang_of_the_future_arrives_at_its_creation_time():
    made = workload_of(snapshot(gang("a", 2, 5, at=1500)))
    assert made.arrivals[0].time == 1500


def test_a_running_gang_ends_after_its_remaining_time_and_the_next_starts():
    first = running(gang("a", 3, 50), 980, ("node-0", "node-1", "node-2"))
    made = workload_of(snapshot(first, gang("b", 2, 10)))
    result = simulate_under_profile(made, PROFILE, RunSettings("fcfs"))
    assert [(one.key, one.started, one.ended) for one in result.gangs] == [
        ("default/a", 1000, 1030),
        ("default/b", 1030, 1040),
    ]


def test_a_running_gang_that_is_killed_loses_all_its_work_and_runs_again_from_the_beginning():
    first = running(gang("a", 1, 50), 980, ("node-0",))
    made = workload_of(snapshot(first))
    outages = (NodeOutage("node-0", 1010), NodeOutage("node-1", 1015), NodeOutage("node-2", 1015))
    result = simulate_under_profile(replace(made, outages=outages), PROFILE, RunSettings("fcfs"))
    (record,) = result.gangs
    assert (record.runtime, record.started, record.ended) == (50, 1015, 1065)
    assert (record.restarts, record.lost) == (2, 30 + 5)


def test_a_gang_with_fewer_bound_pods_than_its_minimum_has_not_begun_to_run():
    whole = gang("a", 2, 50)
    partly = replace(
        whole, pods=(*running(replace(whole, pods=whole.pods[:1]), 980, ("node-0",)).pods, whole.pods[1])
    )
    result = simulate_under_profile(workload_of(snapshot(partly)), PROFILE, RunSettings("fcfs"))
    assert [(one.started, one.ended) for one in result.gangs] == [(1000, 1050)]


def test_pods_of_other_schedulers_stay_and_use_their_node():
    other = Pod(
        metadata=ObjectMeta(name="daemon", namespace="kube-system"),
        spec=PodSpec(node_name="node-0", containers=SPEC.containers),
        status=PodStatus(phase="Running"),
    )
    made = workload_of(snapshot(gang("a", 4, 50), pods=(other,)), start=0.0)
    result = simulate_under_profile(made, PROFILE, RunSettings("fcfs"))
    assert made.cluster.pods == (other,)
    assert result.metrics().unfinished == 1
    assert set(result.series.used["cpu"]) == {1000}


def test_a_single_pod_is_a_gang_of_one():
    alone = Pod(
        metadata=ObjectMeta(name="one", namespace="default", creation_timestamp=format_timestamp(7)),
        spec=SPEC,
    )
    made = workload_of(snapshot(pods=(alone,)), start=0.0, runtime=30)
    result = simulate_under_profile(made, PROFILE, RunSettings("fcfs"))
    assert [(one.key, one.started, one.ended) for one in result.gangs] == [("default/one", 7, 37)]


def reserved(one):
    """The devices that a session reserved for the first pod of a gang."""
    allocation = ReservedClaimDevices("default/claim", AllocationResult())
    return ReservedPodDevices(one.pods[0].key, PodDevices((allocation,), ("default/claim",)))


def test_gangs_that_rested_in_a_recorded_session_run_in_its_simulation():
    recorded = replace(snapshot(gang("a", 2, 50)), resting=("default/a",))
    result = simulate_under_profile(workload_of(recorded), PROFILE, RunSettings("fcfs"))
    assert [(one.started, one.ended) for one in result.gangs] == [(1000, 1050)]


def test_refused_evictions_of_a_recorded_session_protect_no_pod_in_its_simulation():
    first = running(gang("a", 1, 50), 980, ("node-0",))
    recorded = replace(snapshot(first), refused_evictions=(first.pods[0].key,))
    assert workload_of(recorded).cluster.refused_evictions == ()


def test_of_the_devices_that_a_recorded_session_reserved_only_those_of_bound_pods_stay_in_use():
    bound, waiting = running(gang("a", 1, 50), 980, ("node-0",)), gang("b", 1, 50)
    recorded = replace(snapshot(bound, waiting), pod_devices=(reserved(bound), reserved(waiting)))
    assert workload_of(recorded).cluster.pod_devices == (reserved(bound),)


def test_gangs_and_single_pods_that_name_no_queue_belong_to_the_default_queue_of_their_namespace():
    namespace = Namespace(metadata=ObjectMeta(name="default", labels={DEFAULT_QUEUE_LABEL: "team-a"}))
    without, named = gang("a", 1, 50), gang("b", 1, 50)
    unnamed = replace(without, group=PodGroup(metadata=without.group.metadata, spec=PodGroupSpec()))
    alone = Pod(metadata=ObjectMeta(name="one", namespace="default"), spec=SPEC)
    cluster = replace(snapshot(unnamed, named, pods=(alone,)), namespaces=(namespace,))
    result = simulate_under_profile(workload_of(cluster), PROFILE, RunSettings("fcfs"))
    assert [(one.key, one.queue) for one in result.gangs] == [
        ("default/a", "team-a"),
        ("default/b", "default"),
        ("default/one", "team-a"),
    ]


def test_single_pods_of_a_profile_with_another_scheduler_name_end_and_make_room():
    spec = msgspec.structs.replace(SPEC, scheduler_name="mine")
    alone = Pod(metadata=ObjectMeta(name="one", namespace="default"), spec=spec)
    made = workload_of(
        snapshot(gang("a", 1, 50), slots=1, pods=(SimulatedPodBuilder().running_pod(alone, "node-0", 1000),)),
        scheduler_name="mine",
    )
    result = simulate_under_profile(made, PROFILE, RunSettings("fcfs"))
    assert [(one.key, one.started, one.ended) for one in result.gangs] == [
        ("default/a", 1099, 1149),
        ("default/one", 1000, 1099),
    ]


NODES = create_nodes(20, {"cpu": "1"})


def test_outages_of_a_seed_repeat_and_are_ordered_by_time():
    drawn = sample_outages(NODES, 1000.0, 100.0, (0, 10_000), 4)
    assert drawn == sample_outages(NODES, 1000.0, 100.0, (0, 10_000), 4)
    assert [outage.time for outage in drawn] == sorted(outage.time for outage in drawn)


def test_a_node_is_repaired_before_it_fails_again():
    drawn = sample_outages(NODES, 50.0, 100.0, (0, 10_000), 4)
    for node in NODES:
        outages = [outage for outage in drawn if outage.node == node.name]
        assert all((before.until or 0) <= after.time for before, after in itertools.pairwise(outages))
        assert all((outage.until or 0) > outage.time for outage in outages)


def test_nodes_fail_at_the_stated_rate_and_only_in_the_period():
    drawn = sample_outages(NODES, 900.0, 100.0, (5_000, 105_000), 1)
    assert len(drawn) == pytest.approx(20 * 100, rel=0.1)
    assert all(5_000 <= outage.time <= 105_000 for outage in drawn)


def test_a_mean_time_of_zero_is_refused():
    with pytest.raises(InvalidInput, match="mean time"):
        sample_outages(NODES, 0.0, 1.0, (0, 1), 0)


def test_a_trace_is_the_same_text_gzipped_or_plain_under_any_name(tmp_path):
    for name, data in (("plain.gz", b"a\xff\nb"), ("packed.swf", gzip.compress(b"a\xff\nb"))):
        (tmp_path / name).write_bytes(data)
        with open_trace_file(tmp_path / name) as lines:
            assert list(lines) == ["a\ufffd\n", "b"]


@pytest.mark.parametrize("gpus, pods", [(3, ((3, 1),)), (8, ((8, 1),)), (20, ((8, 2), (4, 1))), (0, ())])
def test_a_gang_is_pods_of_whole_nodes_and_one_with_the_remainder(gpus, pods):
    assert split_gpus_into_pods(gpus, 8) == pods
