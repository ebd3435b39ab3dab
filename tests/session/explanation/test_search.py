"""The search for a smallest set of changes, with a rule in place of a session."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from batchsched.api.decision import InputChange
from batchsched.session.explanation.options import ChangeOption
from batchsched.session.explanation.search import ChangeSearch
from batchsched.session.explanation.verification import OutOfBudget


@dataclass
class Rule:
    """Places the gang if a function of the limit and of the new nodes is true; ends after a number of questions."""

    is_placed: Callable[[int, int], bool]
    questions: int = 1000

    def is_gang_placed_after_changes(self, changes: Sequence[InputChange]) -> bool:
        self.questions -= 1
        if self.questions < 0:
            raise OutOfBudget
        limit = next((int(change.value) for change in changes if change.set), 0)
        return self.is_placed(limit, sum(change.count for change in changes if change.copy))

    def is_placed_regardless_of_new_node_names(self, changes: Sequence[InputChange]) -> bool:
        return self.is_gang_placed_after_changes(changes)


LIMIT = ChangeOption(
    lambda steps: (InputChange(set="Queue/q", path="/spec/limit/cpu", value=str(steps)),), most=5
)
NODES = ChangeOption(lambda steps: (InputChange(copy="Node/n0", count=steps),), most=64, field="nodes")


def needs_limit_and_nodes(limit: int, nodes: int) -> bool:
    """Other gangs use the higher limit, and take nodes number 12 to 14 if the limit is low."""
    if limit > 1:
        return nodes >= 16
    return limit == 1 and (3 <= nodes <= 11 or nodes >= 15)


def found(rule: Rule) -> tuple[dict[str, str | int], bool]:
    search = ChangeSearch(rule)
    search.search_for_smallest_set((), (LIMIT,), lambda changes: (NODES,))
    return {
        change.set or change.copy: change.value or change.count for change in search.best_changes
    }, search.smallest


def test_far_fewer_nodes_are_found_if_a_few_nodes_less_do_not_suffice():
    assert found(Rule(needs_limit_and_nodes)) == ({"Queue/q": "1", "Node/n0": 3}, True)


def test_set_stays_as_it_is_if_the_budget_ends_while_fewer_nodes_are_tried():
    enough = next(questions for questions in range(100) if found(Rule(needs_limit_and_nodes, questions))[1])
    for questions in range(enough, enough + 20):
        changes, smallest = found(Rule(needs_limit_and_nodes, questions))
        assert smallest
        assert changes in ({"Queue/q": "1", "Node/n0": 15}, {"Queue/q": "1", "Node/n0": 3})
