"""Label selectors and node selectors, and what they match.

Source: k8s.io/apimachinery/pkg/labels and k8s.io/component-helpers/scheduling/corev1/nodeaffinity. `NotIn` and
`DoesNotExist` match where the label is missing; `Gt` and `Lt` want whole numbers on both sides; the empty label
selector matches everything and a missing one nothing; a node selector term without expressions matches nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from batchsched.api.core.metadata import EMPTY_LABELS, KubernetesValue
from batchsched.errors import InvalidSelector

_MAX_DIGITS: Final = 19
"""Digits of the largest number of 63 bits."""


class SelectorRequirement(KubernetesValue, frozen=True, gc=False):
    """One expression of a label selector or node selector: label key, operator, values."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels satisfies the selector expression.

        Raises:
          InvalidSelector: the operator is unknown.
        """
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in (self.values or ())
            case "NotIn":
                return value is None or value not in (self.values or ())
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
        raise InvalidSelector(
            f"unknown operator {self.operator!r}; expected In, NotIn, Exists, DoesNotExist, Gt or Lt"
        )

    def _compares(self, value: str | None) -> bool:
        bound = parse_go_integer(self.values[0]) if self.values and len(self.values) == 1 else None
        number = parse_go_integer(value) if value is not None else None
        if bound is None or number is None:
            return False
        return number > bound if self.operator == "Gt" else number < bound


def parse_go_integer(text: str) -> int | None:
    """Parse a decimal integer as Go's ParseInt does; return None for text that Go rejects, such as " 5 "."""
    digits = text[1:] if text[:1] in "+-" else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    significant = digits.lstrip("0") or "0"
    if len(significant) > _MAX_DIGITS:  # int() raises for thousands of digits
        return None
    number = -int(significant) if text.startswith("-") else int(significant)
    return number if -(2**63) <= number < 2**63 else None


class LabelSelector(KubernetesValue, frozen=True, gc=False):
    """A label selector: it matches an object if all its labels and expressions match the object's labels."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[SelectorRequirement, ...] | None = None

    @property
    def matches_everything(self) -> bool:
        """True for the selector `{}`, which matches every object."""
        return not self.match_labels and not self.match_expressions

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether the label selector matches an object with these labels."""
        have = labels or EMPTY_LABELS
        if self.match_labels and any(have.get(key) != value for key, value in self.match_labels.items()):
            return False
        return all(requirement.matches(have) for requirement in self.match_expressions or ())

    def label_keys(self) -> frozenset[str]:
        """Return the keys of all labels that the selector reads."""
        expressions = self.match_expressions or ()
        return frozenset(self.match_labels or ()) | frozenset(requirement.key for requirement in expressions)

    def permitted_label_values(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield each label key for which the selector permits only certain values, with these values."""
        for key, value in (self.match_labels or {}).items():
            yield key, (value,)
        for requirement in self.match_expressions or ():
            if requirement.operator == "In":
                yield requirement.key, tuple(dict.fromkeys(requirement.values or ()))


class NodeSelectorTerm(KubernetesValue, frozen=True, gc=False):
    """A node selector term: it matches a node if all its expressions match the node's labels and fields."""

    match_expressions: tuple[SelectorRequirement, ...] | None = None
    match_fields: tuple[SelectorRequirement, ...] | None = None

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Return whether the term matches a node with these labels and this name.

        A term without expressions matches no node.
        """
        if not self.match_expressions and not self.match_fields:
            return False
        return all(requirement.matches(labels) for requirement in self.match_expressions or ()) and all(
            requirement.matches({"metadata.name": name}) for requirement in self.match_fields or ()
        )


class NodeSelector(KubernetesValue, frozen=True, gc=False):
    """A node selector: a list of terms; it matches a node if at least one term matches the node."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Return whether at least one term of the selector matches a node with these labels and this name."""
        return any(term.matches(labels, name) for term in self.node_selector_terms)
