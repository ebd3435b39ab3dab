"""Timings are told of in a tenth of all cycles, the same ones for the same seed, and change nothing."""

from contextlib import contextmanager

import pytest
from typing_extensions import override

from batchsched.errors import PluginError
from batchsched.framework.runtime.plugin_call import PluginTimings
from batchsched.ports.external import NoTelemetry
from batchsched.session.session import decide
from tests.session.scenario import NOW, alone, cluster, nodes, profile


class Noting(NoTelemetry):
    def __init__(self):
        self.calls = []

    @override
    @contextmanager
    def call(self, plugin, point):
        self.calls.append((plugin, point))
        yield


class Plugin:
    name = "Mine"


def cycles_told(seed, count=2000):
    noting = Noting()
    timings = PluginTimings(noting, seed)
    for at in range(count):
        timings.begin_cycle()
        assert timings.ask(Plugin(), str(at), int, at) == at
        timings.ask(Plugin(), "again", int)
    return [point for _, point in noting.calls if point != "again"], len(noting.calls)


def test_a_tenth_of_the_cycles_is_told_of_whole():
    told, calls = cycles_told(7)
    assert 150 < len(told) < 250
    assert calls == 2 * len(told)


def test_the_seed_says_which_cycles():
    assert cycles_told(3) == cycles_told(3)
    assert cycles_told(3) != cycles_told(4)


def test_plugin_that_breaks_is_named_whether_or_not_it_is_timed():
    for timings in (PluginTimings(), PluginTimings(Noting(), 0)):
        for _ in range(50):
            timings.begin_cycle()
            with pytest.raises(PluginError, match="plugin Mine failed in Score: ZeroDivisionError"):
                timings.ask(Plugin(), "Score", lambda: 1 // 0)


def test_listener_hears_of_plugins_and_the_decision_is_the_same():
    snapshot = cluster(nodes(4), alone(60, cpu=1))
    chosen = profile(solver={"enabled": False})
    noting = Noting()
    assert decide(snapshot, chosen, NOW, 1, telemetry=noting) == decide(snapshot, chosen, NOW, 1)
    heard = set(noting.calls)
    assert ("NodeResourcesFit", "Filter") in heard
    assert ("GangScheduling", "Permit") in heard
    assert 0 < noting.calls.count(("GangScheduling", "PreFilter")) < 30
