"""The search for a smallest set of input changes that admits a refused gang; new sessions test each set."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from batchsched.api.decision import InputChange
from batchsched.session.explanation.options import ChangeOption, Choice, changes_of_choice
from batchsched.session.explanation.verification import OutOfBudget

NodeOptions = Callable[[Sequence[InputChange]], Sequence[ChangeOption]]
"""Returns the options to add nodes, given the other changes; these decide which nodes accept the gang."""


class ChangeVerifier(Protocol):
    """The protocol of a verifier, which tests whether changed input would let a refused gang be placed.

    A test raises `OutOfBudget` if too little of the budget remains, which ends the search.
    """

    def is_gang_placed_after_changes(self, changes: Sequence[InputChange]) -> bool:
        """Return whether the gang is placed after the changes, given that added nodes sort last by name."""

    def is_placed_regardless_of_new_node_names(self, changes: Sequence[InputChange]) -> bool:
        """Return True if the gang is placed after the changes, whatever names the added nodes have."""


@dataclass(slots=True)
class ChangeSearch:
    """A search for the smallest set of input changes with which the session places one refused gang.

    Args:
      verifier: tests whether changes admit the gang.
      best: the smallest set that was found to admit the gang so far; None for none.
      smallest: whether `best` was shown to be a smallest set.
      regardless_of_new_node_names: whether a set must admit the gang both if the names of new nodes come last and
        if they come first.
    """

    verifier: ChangeVerifier
    best: Choice | None = field(default=None)
    smallest: bool = False
    regardless_of_new_node_names: bool = False

    def search_for_smallest_set(
        self, job: Sequence[ChangeOption], queues: Sequence[ChangeOption], nodes: NodeOptions
    ) -> None:
        """Search for the smallest set of options that admits the gang, and store it in `best`.

        Each option is tried alone first, and then several options together.

        Args:
          job: options that change the gang itself.
          queues: options that loosen restrictions of queues.
          nodes: returns the options to add nodes.
        """
        # The names of new nodes rarely matter, so that only a result is examined with other names.
        try:
            while True:
                choice_found = self._single(job, queues, nodes) or self._several(job, queues, nodes)
                if choice_found is not None:
                    self.best = choice_found
                    self._shrink()
                if (
                    choice_found is None
                    or self.regardless_of_new_node_names
                    or self.verifier.is_placed_regardless_of_new_node_names(self.best_changes)
                ):
                    break
                self.best, self.regardless_of_new_node_names = None, True
            self.smallest = True
        except OutOfBudget:
            self.smallest = False
            return
        self._try_fewer_nodes()

    @property
    def best_changes(self) -> tuple[InputChange, ...]:
        """The smallest set of changes found so far that admits the gang; () if none was found."""
        return changes_of_choice(self.best or {})

    def _admits(self, choice: Choice) -> bool:
        changes = changes_of_choice(choice)
        if self.regardless_of_new_node_names:
            return self.verifier.is_placed_regardless_of_new_node_names(changes)
        return self.verifier.is_gang_placed_after_changes(changes)

    def _single(
        self, job: Sequence[ChangeOption], queues: Sequence[ChangeOption], nodes: NodeOptions
    ) -> Choice | None:
        """Return one option that admits the gang, with the steps that it probably needs or with all; None for none."""
        for option in (option for option in chain(job, queues) if option.binding):
            if option.guess < option.most and self._admits({option: option.guess}):
                return {option: option.guess}
            if self._admits({option: option.most}):
                return {option: option.most}
        return self._with_nodes({}, nodes)

    def _several(
        self, job: Sequence[ChangeOption], queues: Sequence[ChangeOption], nodes: NodeOptions
    ) -> Choice | None:
        """Return several options that admit the gang together, with all their steps; None for none.

        Options to add nodes are tried only after the options of the job and of queues without them.
        """
        lifted = _at_most(queues)
        for jobs in _variants(job):
            for choice in _distinct(jobs, lifted, {**jobs, **lifted}):
                if len(choice) > 1 and self._admits(choice):
                    return choice
        for jobs in _variants(job):
            for choice in _distinct(lifted, jobs, {**jobs, **lifted}):
                if choice and (choice_found := self._with_nodes(choice, nodes)) is not None:
                    return choice_found
        return None

    def _with_nodes(self, choice: Choice, nodes: NodeOptions) -> Choice | None:
        """Return the choice with the fewest nodes of one type that admit the gang together with it."""
        # If the most nodes of no type help, fewer do not either.
        useful = [
            option
            for option in nodes(changes_of_choice(choice))
            if self._admits({**choice, option: option.most})
        ]
        steps = 1
        while useful:
            for option in useful:
                if self._admits({**choice, option: min(steps, option.most)}):
                    return {**choice, option: min(steps, option.most)}
            steps *= 2
        return None

    def _shrink(self) -> None:
        """Divide the best set, and make it as small as possible: leave out what is not needed, then reduce each part.

        A smaller part may make another one superfluous, since fewer other gangs go first. So this is repeated until
        nothing changes; each pass makes the set smaller.
        """
        assert self.best is not None
        self.best = {part: steps for option, steps in self.best.items() for part in option.parts or (option,)}
        before: Choice = {}
        while self.best != before:
            before = dict(self.best)
            for option in reversed(before):
                without = {other: steps for other, steps in self.best.items() if other is not option}
                if without and self._admits(without):
                    self.best = without
            for option in self.best:
                self._reduce(option)

    def _try_fewer_nodes(self) -> None:
        """Replace the set by one with far fewer nodes if there is one.

        More nodes admit more pods of other gangs too, so that a gang may be placed with 3 and with 7 nodes, and not
        with 6. Only a set that is complete replaces the one before.
        """
        complete, self.regardless_of_new_node_names = self.best, True
        try:
            while (fewer := self._with_far_fewer_nodes(complete or {})) is not None:
                self.best = fewer
                self._shrink()
                complete = self.best
        except OutOfBudget:
            pass
        self.best = complete

    def _with_far_fewer_nodes(self, choice: Choice) -> Choice | None:
        for option, steps in choice.items():
            fewer = 1
            while option.field == "nodes" and fewer < steps - 1:
                if self._admits({**choice, option: fewer}):
                    return {**choice, option: fewer}
                fewer *= 2
        return None

    def _reduce(self, option: ChangeOption) -> None:
        """Reduce the steps of one part to the fewest with which the gang is admitted."""
        assert self.best is not None
        high = self.best[option]
        if not option.monotone:
            smaller = ({**self.best, option: steps} for steps in range(1, high))
            self.best = next(filter(self._admits, smaller), self.best)
            return
        if high > 1 and not self._admits({**self.best, option: high - 1}):
            return
        low = 0
        guess = option.guess
        while high - low > 1:
            middle = guess if low < guess < high else (low + high) // 2
            if self._admits({**self.best, option: middle}):
                high = middle
                self.best = {**self.best, option: high}
            else:
                low = middle


def _at_most(options: Sequence[ChangeOption], alternative: int = 0) -> Choice:
    """Return the options with all their steps; of several options with one field, the one of the given number."""
    fields: dict[str, list[ChangeOption]] = {}
    for option in options:
        fields.setdefault(option.field, []).append(option)
    chosen = (same[min(alternative, len(same) - 1)] for same in fields.values())
    return {option: option.most for option in chosen}


def _variants(job: Sequence[ChangeOption]) -> Iterator[Choice]:
    """Yield choices of all options of the job: without a change of what nodes are selected, then with each one."""
    alternatives = Counter(option.field for option in job)
    yield _at_most([option for option in job if "nodeSelector" not in option.field])
    if any("nodeSelector" in field for field in alternatives):
        for number in range(max(alternatives.values())):
            yield _at_most(job, number)


def _distinct(*choices: Choice) -> Iterator[Choice]:
    """Yield the choices without repetitions."""
    seen: list[Choice] = []
    for choice in choices:
        if choice not in seen:
            seen.append(choice)
            yield choice
