"""HyperNodes of Volcano (`topology.volcano.sh`), read as labels of nodes and as a Topology with a level for each tier.

A HyperNode of tier 1 contains nodes, and HyperNodes of higher tiers contain other HyperNodes. The levels of a Topology
are labels of nodes, so each node gets a label for each tier: the HyperNode of the highest tier, up to this one, that
contains it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from msgspec.structs import replace

from batchsched.api.core.metadata import KubernetesObject, KubernetesValue
from batchsched.api.core.node import Node
from batchsched.api.core.selector import LabelSelector
from batchsched.api.crd.base import LONGEST_NAME
from batchsched.api.crd.topology import MOST_LEVELS, Topology
from batchsched.api.external.pod_group import SOURCE
from batchsched.api.snapshot import ObjectKind
from batchsched.errors import InvalidInput

HYPER_NODE_TOPOLOGY: Final = "volcano"
"""Name of the Topology of all HyperNodes."""
TIER_LABEL: Final = "hypernode.batchsched.dev/tier-"
"""Label of nodes, followed by a tier: the HyperNode that contains the node."""
_VERSION: Final = "topology.volcano.sh/v1alpha1"
_LONGEST_PATTERN: Final = 200
_MOST_CHOICES: Final = 3
"""Places of a pattern with choices that multiply; for names of 253 characters, three take tenths of a second."""
_MOST_BRANCHES: Final = 8
"""Alternatives and optional parts of a pattern; a quarter as many with the most choices."""
_TOKEN: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}|\(\?:|.", re.DOTALL)
_LITERAL_PREFIX: Final = re.compile(r"\^([A-Za-z0-9-]*)(?![A-Za-z0-9*+?{-])")
"""The start of a pattern: characters that stand for themselves, each of which occurs once."""
_AFTER_DIGITS: Final = re.compile(r"[a-z$-]|\\\.|")


def describe_unusable_pattern(pattern: str) -> str:
    """Return the reason why a HyperNode's regular expression is not accepted; "" if it is accepted.

    The `re` module has no time limit, so patterns that may take long are refused. These are patterns with a repeated
    group, with more than 3 quantifiers that several lengths may satisfy, with more than 8 alternatives and optional
    parts (2 together with 3 such quantifiers), with back references, or with groups of other kinds than `(...)` and
    `(?:...)`. A search that may start anywhere counts as a quantifier. Digits before another character, such as
    `[0-9]+-`, do not count, because only one length satisfies them.
    """
    if len(pattern) > _LONGEST_PATTERN:
        return f"is longer than {_LONGEST_PATTERN} characters"
    tokens = [*_TOKEN.findall(pattern), "", ""]
    choices = 0 if pattern.startswith("^") and "|" not in tokens else 1
    for index, token in enumerate(tokens[:-2]):
        before, after, second = tokens[index - 1] if index else "", tokens[index + 1], tokens[index + 2]
        if (token == "(" and after == "?") or re.fullmatch(r"\\[1-9]", token):
            return "has a back reference, or a group of another kind than (...) and (?:...)"
        repeats = token in {"*", "+"} or token.startswith("{")
        if before == ")" and repeats:
            return "repeats a group, which may take too long"
        single = before in {"[0-9]", r"\d"} and _AFTER_DIGITS.fullmatch(after) and second[:1] not in "*?{"
        if repeats and not (single or re.fullmatch(r"\{\d+\}", token)):
            choices += 1
    branches = tokens.count("?") + tokens.count("|")
    most_branches = _MOST_BRANCHES // 4 if choices == _MOST_CHOICES else _MOST_BRANCHES
    if choices > _MOST_CHOICES or branches > most_branches:
        return "has too many quantifiers or alternatives, which may take too long; anchor it with ^"
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is not a regular expression: {error}"
    return ""


@lru_cache(maxsize=4096)
def _usable_pattern(pattern: str) -> re.Pattern[str] | None:
    return None if describe_unusable_pattern(pattern) else re.compile(pattern)


class NameSelector(KubernetesValue, frozen=True, gc=False):
    """A HyperNode's selector `exactMatch`, which selects the node or HyperNode with a given name."""

    name: str = ""


class PatternSelector(KubernetesValue, frozen=True, gc=False):
    """A HyperNode's selector `regexMatch`, which selects nodes or HyperNodes by a pattern of their names."""

    pattern: str = ""


class MemberSelector(KubernetesValue, frozen=True, gc=False):
    """The selector of members of a HyperNode: by name, by pattern, or by labels of nodes."""

    exact_match: NameSelector | None = None
    regex_match: PatternSelector | None = None
    label_match: LabelSelector | None = None

    def selects(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether this selector selects a node or HyperNode that has the given name and labels.

        A selector with an unusable pattern or an invalid label expression selects nothing.
        """
        if self.exact_match is not None:
            return self.exact_match.name == name
        if self.regex_match is not None:
            pattern = _usable_pattern(self.regex_match.pattern)
            return pattern is not None and pattern.search(name) is not None
        try:
            return self.label_match is not None and self.label_match.matches(labels)
        except InvalidInput:
            return False

    @property
    def permitted_label_values(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The label keys that a selected node must have, with the permitted values of each label.

        The result is () if the selector selects members by name or pattern.
        """
        if self.exact_match is not None or self.regex_match is not None or self.label_match is None:
            return ()
        return tuple(self.label_match.permitted_label_values())


class HyperNodeMember(KubernetesValue, frozen=True, gc=False):
    """An entry in the member list of a HyperNode, which selects nodes or other HyperNodes as members."""

    type: str = "Node"
    selector: MemberSelector = MemberSelector()


class HyperNodeSpec(KubernetesValue, frozen=True, gc=False):
    """The spec of a HyperNode: its tier, and its members."""

    tier: int = 1
    tier_name: str = ""
    members: tuple[HyperNodeMember, ...] | None = None


class HyperNode(KubernetesObject, frozen=True, gc=False):
    """A HyperNode of Volcano: a domain of the network. Source: `HyperNodeSpec` of topology.volcano.sh/v1alpha1."""

    spec: HyperNodeSpec = HyperNodeSpec()


HYPER_NODE_KIND: Final = ObjectKind("HyperNode", _VERSION, HyperNode, "hyper_nodes")


_Condition = tuple[str, ...]
"""A condition that each member of a selector meets: an exact name, a label with its value, or a prefix of names."""


class HyperNodeMemberIndex:
    """An index that finds the HyperNodes that have a given node or HyperNode as a member.

    The selectors are indexed by a condition that all members of a selector meet, so that few of them are tried for a
    name. Of several labels, the one that the fewest selectors require is the condition.

    Args:
      hyper_nodes: the HyperNodes.
      member_type: `Node`, or `HyperNode` for members that are HyperNodes.
    """

    def __init__(self, hyper_nodes: Iterable[HyperNode], member_type: str) -> None:
        selectors = [
            (member.selector, hyper_node)
            for hyper_node in hyper_nodes
            for member in hyper_node.spec.members or ()
            if member.type == member_type
        ]
        label_counts = Counter(
            (key, value)
            for selector, _ in selectors
            for key, values in selector.permitted_label_values
            for value in values
        )
        self._by_condition: dict[_Condition, list[tuple[MemberSelector, HyperNode]]] = {}
        for selector, hyper_node in selectors:
            for condition in _conditions(selector, label_counts):
                self._by_condition.setdefault(condition, []).append((selector, hyper_node))
        self._prefix_lengths = sorted(
            {len(condition[1]) for condition in self._by_condition if condition[0] == "prefix"}
        )

    def hyper_nodes_with_member(self, name: str, labels: Mapping[str, str]) -> list[HyperNode]:
        """Return the HyperNodes that have the object with this name and these labels as a direct member."""
        conditions = [("name", name)]
        conditions += [("prefix", name[:length]) for length in self._prefix_lengths]
        conditions_of_labels = [("label", key, value) for key, value in labels.items()]
        return [
            hyper_node
            for condition in (*conditions, *conditions_of_labels)
            for selector, hyper_node in self._by_condition.get(condition, ())
            if selector.selects(name, labels)
        ]


def _conditions(selector: MemberSelector, label_counts: Mapping[tuple[str, str], int]) -> list[_Condition]:
    """Return a list of conditions; each member of the selector meets exactly one of them."""
    if selector.exact_match is not None:
        return [("name", selector.exact_match.name)]
    if selector.regex_match is not None:
        return [("prefix", _literal_prefix(selector.regex_match.pattern))]
    required = selector.permitted_label_values
    if not required:
        return [("prefix", "")]
    key, values = min(required, key=lambda label: sum(label_counts[label[0], value] for value in label[1]))
    return [("label", key, value) for value in values]


def _literal_prefix(pattern: str) -> str:
    """Return the characters with which each name begins that a pattern matches; "" if they are not known."""
    prefix = _LITERAL_PREFIX.match(pattern)
    return prefix[1] if prefix is not None and "|" not in pattern else ""


def topology_levels_of_tiers(tiers: Sequence[int], tier_names: Mapping[int, str]) -> list[dict[str, str]]:
    """Return one Topology level, as a dict with its name and node label, for each tier of HyperNodes.

    The name of a level is the `tierName` of its tier if this is unique and not too long, otherwise `tier-N`.

    Args:
      tiers: the tiers, in the order of the levels.
      tier_names: the `tierName` of each tier that has one.
    """
    names = [name for tier, name in tier_names.items() if tier in tiers]
    taken = [*names, *(f"tier-{tier}" for tier in tiers)]
    levels = []
    for tier in tiers:
        name = tier_names.get(tier, "")
        usable = bool(name) and taken.count(name) == 1 and len(name) <= LONGEST_NAME
        levels.append({"name": name if usable else f"tier-{tier}", "nodeLabel": f"{TIER_LABEL}{tier}"})
    return levels


def tier_labels(hyper_nodes: Mapping[int, str], tiers: Sequence[int]) -> dict[str, str]:
    """Return the labels of a node: for each tier the HyperNode that contains the node, or that of the tier below.

    Args:
      hyper_nodes: the name of the HyperNode that contains the node, by tier.
      tiers: all tiers, the highest first.
    """
    labels, name = {}, ""
    for tier in reversed(tiers):
        name = hyper_nodes.get(tier, name)
        if name:
            labels[f"{TIER_LABEL}{tier}"] = name
    return labels


@dataclass(frozen=True)
class HyperNodeTree:
    """All HyperNodes of Volcano in a cluster, as a tree.

    Args:
      hyper_nodes: the HyperNodes.
    """

    hyper_nodes: tuple[HyperNode, ...]

    @classmethod
    def from_hyper_nodes(cls, hyper_nodes: Iterable[HyperNode]) -> "HyperNodeTree":
        """Create the tree from the HyperNodes of Volcano, which may be in any order."""
        return cls(
            tuple(
                sorted(hyper_nodes, key=lambda hyper_node: (hyper_node.spec.tier, hyper_node.metadata.name))
            )
        )

    @cached_property
    def _above(self) -> dict[str, list[HyperNode]]:
        """The HyperNodes that contain a HyperNode, by its name."""
        index = HyperNodeMemberIndex(self.hyper_nodes, "HyperNode")
        return {
            inner.metadata.name: index.hyper_nodes_with_member(
                inner.metadata.name, inner.metadata.labels or {}
            )
            for inner in self.hyper_nodes
        }

    @cached_property
    def _by_member_node(self) -> HyperNodeMemberIndex:
        return HyperNodeMemberIndex(self.hyper_nodes, "Node")

    def hyper_nodes_containing_node(self, node: Node) -> Iterator[HyperNode]:
        """Yield once each HyperNode that contains a node, directly or through other HyperNodes."""
        waiting = self._by_member_node.hyper_nodes_with_member(node.name, node.metadata.labels or {})
        seen: set[str] = set()
        while waiting:
            hyper_node = waiting.pop()
            if hyper_node.metadata.name not in seen:
                seen.add(hyper_node.metadata.name)
                yield hyper_node
                waiting += self._above[hyper_node.metadata.name]

    def node_with_tier_labels(self, node: Node) -> Node:
        """Return the node with one label for each tier, which names the HyperNode that contains the node.

        The labels of HyperNodes that no longer contain the node are removed.
        """
        by_tier: dict[int, str] = {}
        for hyper_node in sorted(
            self.hyper_nodes_containing_node(node),
            key=lambda hyper_node: hyper_node.metadata.name,
            reverse=True,
        ):
            by_tier[hyper_node.spec.tier] = hyper_node.metadata.name
        before = node.metadata.labels or {}
        labels = {key: text for key, text in before.items() if not key.startswith(TIER_LABEL)}
        labels |= tier_labels(by_tier, self._tiers)
        return node if labels == before else replace(node, metadata=replace(node.metadata, labels=labels))

    @cached_property
    def _tiers(self) -> tuple[int, ...]:
        """The tiers from the highest to the lowest, without gaps, at most as many as a Topology has levels."""
        tiers = [hyper_node.spec.tier for hyper_node in self.hyper_nodes]
        return tuple(range(max(tiers), min(tiers) - 1, -1)[-MOST_LEVELS:]) if tiers else ()

    @cached_property
    def topology(self) -> Topology | None:
        """The Topology with one level for each tier, highest tier first; None if there are no HyperNodes.

        The name of a level is the `tierName` of its tier if this is unique and not too long, otherwise `tier-N`.
        """
        if not self.hyper_nodes:
            return None
        names = {one.spec.tier: one.spec.tier_name for one in self.hyper_nodes if one.spec.tier_name}
        levels = topology_levels_of_tiers(self._tiers, names)
        meta = {"name": HYPER_NODE_TOPOLOGY, "annotations": {SOURCE: _VERSION}}
        return Topology.model_validate({"metadata": meta, "spec": {"levels": levels}})
