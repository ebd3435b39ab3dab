from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.scheduling_queue.entity import Entity
from batchsched.scheduling_queue.gates import plugins_that_gate
from tests.scheduling_queue.entities import NAME, pod, standard_pipeline

GATES = [{"name": "g"}]


def entity(*pods):
    made = Entity("default/g", 0, 0.0)
    for one in pods:
        made.put(one)
    return made


class Broken:
    name = "Broken"

    def preenqueue(self, one):
        raise ZeroDivisionError


def test_one_pod_that_is_let_in_lets_its_gang_in():
    pipelines = {NAME: standard_pipeline()}
    assert plugins_that_gate(entity(pod("a", schedulingGates=GATES)), pipelines) == ("SchedulingGates",)
    assert plugins_that_gate(entity(pod("a", schedulingGates=GATES), pod("b")), pipelines) == ()


def test_a_plugin_that_breaks_keeps_its_pod_out_and_a_scheduler_that_is_unknown_nobody():
    assert plugins_that_gate(entity(pod("a")), {NAME: Pipeline([Broken()])}) == ("Broken",)
    assert plugins_that_gate(entity(pod("a", schedulerName="other")), {NAME: Pipeline([Broken()])}) == ()
