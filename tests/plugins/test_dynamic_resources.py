from batchsched.api.core.device import DeviceClass, DeviceClassSpec
from batchsched.api.core.metadata import ObjectMeta
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.preemption import Nominations, PreemptionHandle, run_postfilters
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.status import Code, PreFilterAnswer, Status
from batchsched.plugins.dynamic_resources import DynamicResources
from tests.plugins.cluster import class_of, node, pod, refusals, table


class Refuses:
    """A PreFilter that refuses every pod."""

    name = "Refuses"

    def __init__(self, code):
        self.code = code

    def prefilter(self, pod, nodes, state):
        return PreFilterAnswer(Status(self.code, ("no",)))


def made_room(*plugins, version="1.36"):
    made, pipeline = table([node("a")], version=version), Pipeline(plugins)
    wish = class_of(made, pod())
    return run_postfilters(
        PreemptionHandle(
            pipeline, wish, made, pipeline.find_nodes_that_pass_filters(wish, made), Nominations({})
        )
    )


def test_a_pod_without_claims_skips_the_filter_and_scores_nothing():
    made = table([node("a"), node("b")])
    answer = DynamicResources().prefilter(class_of(made, pod()), made.all_nodes_view(), CycleState())
    assert answer.status.code is Code.SKIP
    state = CycleState()
    assert DynamicResources().prescore(class_of(made, pod()), made.all_nodes_view(), state).code is Code.SKIP
    assert DynamicResources().signature(pod()) == DynamicResources().signature(pod(nodeName="a"))


def test_postfilter_finds_no_claims_to_deallocate():
    answer = made_room(DynamicResources())
    assert answer.status == Status(Code.UNSCHEDULABLE, ("no new claims to deallocate",), "DynamicResources")


def test_postfilter_of_1_37_states_no_reason_for_a_pod_without_claims():
    answer = made_room(DynamicResources(), version="1.37")
    assert answer.status == Status(Code.UNSCHEDULABLE, (), "DynamicResources")


def test_postfilter_returns_the_error_of_kube_scheduler_after_an_unresolvable_prefilter():
    answer = made_room(Refuses(Code.UNRESOLVABLE), DynamicResources())
    assert answer.status == Status(Code.ERROR, ("not found",), "DynamicResources")


def test_postfilter_answers_after_an_unschedulable_prefilter():
    assert made_room(Refuses(Code.UNSCHEDULABLE), DynamicResources()).status.plugin == "DynamicResources"


def test_a_node_must_name_extended_resources_that_only_device_plugins_serve():
    served = DeviceClass(
        metadata=ObjectMeta(name="gpu"), spec=DeviceClassSpec(extended_resource_name="example.com/gpu")
    )
    made = table([node("a"), node("b", {"example.com/fpga": "0"})], device_classes=[served])
    both = pod(requests={"example.com/gpu": "1", "example.com/fpga": "1"})
    assert refusals(DynamicResources(), both, made) == {
        "a": ("cannot fit resource",),
        "b": ("cannot allocate all claims",),
    }
