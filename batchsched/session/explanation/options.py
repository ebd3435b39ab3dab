"""Options: single changes of the input that may admit a refused gang, and choices of several options.

Options that change the gang itself are tried before options of queues, and these before added nodes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from batchsched.api.decision import InputChange

MAX_ALTERNATIVES: Final = 4
"""Maximum alternatives of one kind, such as taints to tolerate, or types of nodes to add."""


@dataclass(frozen=True, eq=False)
class ChangeOption:
    """A change of the input that may admit a refused gang, in several sizes, such as 1, 2 or 3 more nodes.

    Args:
      changes: returns the changes of a number of steps.
      most: the number of steps beyond which nothing more is gained.
      guess: the number of steps that probably suffices.
      field: what the option sets; of the options with one field, only one can apply.
      binding: False if what the option lifts does not stop the gang by itself.
      parts: the options that together make the same change, if it can be divided.
      monotone: True if more steps admit whatever fewer steps admit; False if only all steps together do.
    """

    changes: Callable[[int], tuple[InputChange, ...]]
    most: int = 1
    guess: int = 1
    field: str = ""
    binding: bool = True
    parts: tuple["ChangeOption", ...] = ()
    monotone: bool = True


Choice = dict[ChangeOption, int]
"""The steps of each option in a set of changes."""


def changes_of_choice(choice: Choice) -> tuple[InputChange, ...]:
    """Return all changes of the input that the chosen options make, each option in its chosen size."""
    return tuple(change for option, steps in choice.items() for change in option.changes(steps))
