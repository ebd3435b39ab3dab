import pytest

from batchsched.errors import PluginError
from batchsched.framework.events import Action, ClusterEvent, ClusterEventWithHint, Hint, Resource
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.scheduling_queue.entity import Entity, Rejection
from batchsched.scheduling_queue.hints import InFlightEvent, QueueingHints, Strategy
from tests.plugins.cluster import node
from tests.scheduling_queue.entities import NAME, Listening, pod, says

CAME = InFlightEvent(ClusterEvent(Resource.NODE, Action.ADD), None, node("n"))


def hints(**answers: Hint) -> QueueingHints:
    plugins = [
        Listening(name, ClusterEventWithHint.on(Resource.NODE, Action.ADD, says(answer)))
        for name, answer in answers.items()
    ]
    return QueueingHints({NAME: Pipeline(plugins)})


def refused(*by: str, pending: tuple[str, ...] = ()) -> Entity:
    entity = Entity("pod/default/p", 0, 0.0, rejection=Rejection.by(*by, pending=pending))
    entity.put(pod("p"))
    return entity


def test_one_who_refused_and_hopes_is_enough():
    made = hints(A=Hint.SKIP, B=Hint.QUEUE)
    assert made.strategy(refused("A", "B"), CAME) is Strategy.AFTER_BACKOFF
    assert made.strategy(refused("A"), CAME) is Strategy.SKIP


def test_only_those_who_refused_are_asked():
    assert hints(A=Hint.SKIP, B=Hint.QUEUE).strategy(refused("A"), CAME) is Strategy.SKIP


def test_who_is_pending_on_it_need_not_back_off():
    made = hints(A=Hint.QUEUE, B=Hint.QUEUE)
    assert made.strategy(refused("A", pending=("B",)), CAME) is Strategy.IMMEDIATELY
    assert (
        hints(A=Hint.QUEUE, B=Hint.SKIP).strategy(refused("A", pending=("B",)), CAME)
        is Strategy.AFTER_BACKOFF
    )


def test_whom_nobody_refused_tries_again_whatever_happens():
    assert hints(A=Hint.SKIP).strategy(refused(), CAME) is Strategy.AFTER_BACKOFF


def test_pods_of_another_scheduler_go_by_its_own_plugins():
    entity = Entity("pod/default/p", 0, 0.0, rejection=Rejection.by("A"))
    entity.put(pod("p", schedulerName="other"))
    assert hints(A=Hint.SKIP).strategy(entity, CAME) is Strategy.AFTER_BACKOFF


@pytest.mark.parametrize("answer", [None, [Hint.QUEUE]], ids=["none", "hints"])
def test_a_plugin_that_registers_nonsense_is_named_before_anybody_waits(answer):
    class Nonsense:
        name = "Nonsense"

        def events_to_register(self):
            return answer

    with pytest.raises(PluginError, match="plugin Nonsense failed in EventsToRegister"):
        QueueingHints({NAME: Pipeline([Nonsense()])})
