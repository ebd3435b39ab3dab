from batchsched.framework.status import Code
from batchsched.plugins.scheduling_gates import SchedulingGates
from tests.plugins.cluster import pod


def test_a_gated_pod_is_refused_at_preenqueue_with_the_names_of_its_gates():
    status = SchedulingGates().preenqueue(pod(schedulingGates=[{"name": "quota"}, {"name": "data"}]))
    assert status.code is Code.UNRESOLVABLE
    assert status.reasons == ("waiting for scheduling gates: [quota data]",)


def test_a_pod_without_gates_is_accepted():
    assert SchedulingGates().preenqueue(pod()).ok
    assert SchedulingGates().preenqueue(pod(schedulingGates=[])).ok


def test_gated_pods_are_a_class_of_their_own():
    assert SchedulingGates().signature(pod()) != SchedulingGates().signature(
        pod(schedulingGates=[{"name": "q"}])
    )
