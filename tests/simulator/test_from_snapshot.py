from dataclasses import replace

from batchsched.api.core.metadata import ObjectMeta, timestamp
from batchsched.api.core.pod import Pod, PodSpec, PodStatus
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.lab.simulation import simulate
from batchsched.simulator.from_snapshot import workload
from batchsched.simulator.kubelet import Kubelet
from batchsched.simulator.run import RunSettings
from batchsched.simulator.workload import GangShape, nodes, pod_spec, rigid

SPEC = pod_spec({"cpu": "1"})
PROFILE = Profile.model_validate({"selection": "ordered", "policy": {"name": "fcfs"}})


def gang(name, size, runtime, at=0):
    return rigid(GangShape(name, ((SPEC, size),), runtime), at, 0)


def snapshot(*gangs, slots=4, pods=()):
    return Snapshot(
        nodes=nodes(slots, {"cpu": "1"}),
        pod_groups=tuple(one.group for one in gangs),
        pods=(*(pod for one in gangs for pod in one.pods), *pods),
    )


def running(one, since, places):
    kubelet = Kubelet()
    pods = tuple(kubelet.start(pod, node, since) for pod, node in zip(one.pods, places, strict=True))
    return replace(one, pods=pods)


def test_gangs_that_wait_are_there_from_the_start_and_run_as_they_say():
    made = workload(snapshot(gang("a", 2, 50)), 1000.0, 99, "given")
    assert [(one.at, one.runtime, one.key) for one in made.arrivals] == [(1000, 50, "default/a")]


def test_gangs_that_do_not_say_run_for_the_default():
    made = workload(snapshot(gang("a", 2, None)), 1000.0, 99, "given")
    assert made.arrivals[0].runtime == 99


def test_a_gang_of_the_future_comes_when_it_was_created():
    made = workload(snapshot(gang("a", 2, 5, at=1500)), 1000.0, 99, "given")
    assert made.arrivals[0].at == 1500


def test_a_gang_that_runs_ends_when_its_time_is_over_and_the_next_starts():
    first = running(gang("a", 3, 50), 980, ("node-0", "node-1", "node-2"))
    made = workload(snapshot(first, gang("b", 2, 10)), 1000.0, 99, "given")
    result = simulate(made, PROFILE, RunSettings("fcfs"))
    assert [(one.key, one.started, one.ended) for one in result.gangs] == [
        ("default/a", 1000, 1030),
        ("default/b", 1030, 1040),
    ]


def test_pods_of_others_stay_for_good_and_take_their_room():
    other = Pod(
        metadata=ObjectMeta(name="daemon", namespace="kube-system"),
        spec=PodSpec(node_name="node-0", containers=SPEC.containers),
        status=PodStatus(phase="Running"),
    )
    made = workload(snapshot(gang("a", 4, 50), pods=(other,)), 0.0, 99, "given")
    result = simulate(made, PROFILE, RunSettings("fcfs"))
    assert made.cluster.pods == (other,)
    assert result.metrics().unfinished == 1
    assert set(result.series.used["cpu"]) == {1000}


def test_a_pod_alone_is_a_gang_of_one():
    alone = Pod(
        metadata=ObjectMeta(name="one", namespace="default", creation_timestamp=timestamp(7)), spec=SPEC
    )
    made = workload(snapshot(pods=(alone,)), 0.0, 30, "given")
    result = simulate(made, PROFILE, RunSettings("fcfs"))
    assert [(one.key, one.started, one.ended) for one in result.gangs] == [("default/one", 7, 37)]
