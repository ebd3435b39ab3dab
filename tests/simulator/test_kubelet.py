from batchsched.api.core.metadata import seconds
from batchsched.simulator.kubelet import Kubelet
from batchsched.simulator.workload import GangShape, pod_spec, rigid

PODS = rigid(GangShape("g", ((pod_spec({"cpu": "1"}), 2),), None), 0, 1).pods


def test_a_bound_pod_runs_on_its_node_since_the_moment():
    pod = Kubelet().start(PODS[0], "node-3", 1234)
    assert (pod.node, pod.key, pod.status.phase) == ("node-3", PODS[0].key, "Running")
    assert seconds(pod.status.start_time) == 1234.0


def test_equal_pods_on_one_node_share_their_spec():
    kubelet = Kubelet()
    first, second = (kubelet.start(pod, "node-3", at) for at, pod in enumerate(PODS))
    assert first.spec is second.spec
    assert first.status != second.status


def test_a_pod_made_anew_waits_as_it_did_when_it_came():
    kubelet = Kubelet()
    again = kubelet.recreate(kubelet.start(PODS[0], "node-3", 5))
    assert again == PODS[0]
    assert again.spec is PODS[0].spec


def test_a_pod_that_another_started_is_made_anew_without_its_node():
    started = Kubelet().start(PODS[0], "node-3", 5)
    assert Kubelet().recreate(started) == PODS[0]
