"""A plugin that has exceeded its deadline is left out: it says nothing against any pod, for every node."""

from typing import Any, ClassVar

import numpy as np

from batchsched.framework import interface
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.runtime.deadline import wrap_with_deadline
from batchsched.ports.external import ExceededDeadline
from tests.plugins.cluster import class_of, node, pod, table


class Refusing:
    """Would refuse every node, and is never asked."""

    name: ClassVar[str] = "Refusing"

    def filter(self, pod, nodes, state):
        raise AssertionError

    def score(self, pod, nodes, state):
        raise AssertionError

    def normalize(self, scores, pod, nodes, state):
        raise AssertionError

    def allows_bulk_placement(self, pod, table, nodes, counts):
        raise AssertionError


class Exceeded:
    """The deadline of a plugin that exceeded it in an earlier session."""

    def find_exceeded_deadline(self, plugin):
        return ExceededDeadline(plugin, "Filter", 0, 1.0)

    def call_within_deadline(self, plugin, point, call):
        raise AssertionError


def test_a_disabled_plugin_accepts_every_node_and_gives_equal_scores():
    made = table([node(f"n{at}") for at in range(3)])
    pod_class, nodes, state = class_of(made, pod("p")), made.all_nodes_view(), CycleState()
    plugin: Any = wrap_with_deadline(Refusing(), Exceeded())
    assert plugin.filter(pod_class, nodes, state).feasible_mask.tolist() == [True] * 3
    assert plugin.score(pod_class, nodes, state).tolist() == [0] * 3
    assert plugin.normalize(np.array([1, 2, 3]), pod_class, nodes, state).tolist() == [0] * 3
    assert plugin.allows_bulk_placement(pod_class, made, np.arange(3), np.ones(3)) is True


class Unhurried:
    """Accepts calls without a deadline."""

    def find_exceeded_deadline(self, plugin):
        return None

    def call_within_deadline(self, plugin, point, call):
        return call()


def test_a_plugin_with_a_deadline_keeps_every_optional_method_of_the_plugin_interface():
    methods = {
        method
        for protocol in vars(interface).values()
        if getattr(protocol, "_is_protocol", False) and protocol.__name__.endswith("Plugin")
        for method in vars(protocol)
        if not method.startswith("_") and callable(getattr(protocol, method))
    }
    assert {"filter", "hold_for_nominated_pod", "undo_prebind"} < methods
    complete = type("Complete", (), {"name": "Complete", **dict.fromkeys(methods, lambda *_: None)})()
    wrapped = wrap_with_deadline(complete, Unhurried())
    assert {method for method in methods if not hasattr(wrapped, method)} == set()


def test_a_disabled_plugin_holds_nothing_for_nominated_pods():
    class Holding(Refusing):
        def hold_for_nominated_pod(self, pod, node, nodes):
            raise AssertionError

        def stop_holding_for_nominated_pod(self, pod, nodes):
            raise AssertionError

    made = table([node("n")])
    plugin: Any = wrap_with_deadline(Holding(), Exceeded())
    assert isinstance(plugin, interface.NominatedPodPlugin)
    plugin.hold_for_nominated_pod(pod("p"), 0, made)
    plugin.stop_holding_for_nominated_pod(pod("p"), made)
