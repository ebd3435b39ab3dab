from batchsched.framework.cycle_state import CycleState
from batchsched.framework.preemption import Handle, Nominations, make_room
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.status import Code, PreFilterAnswer, Status
from batchsched.plugins.dynamic_resources import DynamicResources
from tests.plugins.cluster import class_of, node, pod, scores, table


class Refuses:
    """A PreFilter that refuses every pod."""

    name = "Refuses"

    def __init__(self, code):
        self.code = code

    def prefilter(self, pod, nodes, state):
        return PreFilterAnswer(Status(self.code, ("no",)))


def made_room(*plugins):
    made, pipeline = table([node("a")]), Pipeline(plugins)
    wish = class_of(made, pod())
    return make_room(Handle(pipeline, wish, made, pipeline.scan(wish, made), Nominations({})))


def test_a_pod_without_claims_skips_the_filter_and_scores_nothing():
    made = table([node("a"), node("b")])
    answer = DynamicResources().prefilter(class_of(made, pod()), made.all(), CycleState())
    assert answer.status.code is Code.SKIP
    assert scores(DynamicResources(), pod(), made) == [0, 0]
    assert DynamicResources().signature(pod()) == DynamicResources().signature(pod(nodeName="a"))


def test_there_is_no_claim_to_give_back():
    answer = made_room(DynamicResources())
    assert answer.status == Status(Code.UNSCHEDULABLE, ("no new claims to deallocate",), "DynamicResources")


def test_it_errs_as_the_original_when_a_prefilter_ahead_of_it_ended_the_cycle():
    answer = made_room(Refuses(Code.UNRESOLVABLE), DynamicResources())
    assert answer.status == Status(Code.ERROR, ("not found",), "DynamicResources")


def test_a_refusal_that_lets_the_others_run_is_none_of_its_business():
    assert made_room(Refuses(Code.UNSCHEDULABLE), DynamicResources()).status.plugin == "DynamicResources"
