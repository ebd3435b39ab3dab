"""Plugin calls are timed in a tenth of all cycles, the same ones for the same seed, without an effect on decisions."""

from contextlib import contextmanager

import pytest
from typing_extensions import override

from batchsched.errors import PluginError
from batchsched.framework.runtime.plugin_call import PluginCallSampler, call_plugin
from batchsched.ports.external import NoTelemetry
from batchsched.session.session import decide
from tests.session.scenario import NOW, alone, cluster, nodes, profile


class Noting(NoTelemetry):
    def __init__(self):
        self.calls = []

    @override
    @contextmanager
    def plugin_span(self, plugin, point):
        self.calls.append((plugin, point))
        yield


class Plugin:
    name = "Own"


def timed_cycles(seed, count=2000):
    noting = Noting()
    timings = PluginCallSampler(noting, seed)
    for at in range(count):
        timings.begin_cycle()
        assert timings.ask(Plugin(), str(at), int, at) == at
        timings.ask(Plugin(), "again", int)
    return [point for _, point in noting.calls if point != "again"], len(noting.calls)


def test_all_calls_of_a_tenth_of_the_cycles_are_timed():
    timed, calls = timed_cycles(7)
    assert 150 < len(timed) < 250
    assert calls == 2 * len(timed)


def test_the_seed_selects_the_timed_cycles():
    assert timed_cycles(3) == timed_cycles(3)
    assert timed_cycles(3) != timed_cycles(4)


def test_plugin_that_raises_is_named_whether_or_not_it_is_timed():
    for timings in (PluginCallSampler(), PluginCallSampler(Noting(), 0)):
        for _ in range(50):
            timings.begin_cycle()
            with pytest.raises(PluginError, match="plugin Own failed in Score: ZeroDivisionError"):
                timings.ask(Plugin(), "Score", lambda: 1 // 0)


class Broken:
    """An external plugin that raises."""

    def filter(self) -> None:
        raise KeyError("gpu")


def test_failing_plugin_of_another_package_is_named_with_file_and_line():
    line = Broken.filter.__code__.co_firstlineno + 1
    with pytest.raises(PluginError) as caught:
        call_plugin(Broken(), "Filter", Broken().filter)
    assert str(caught.value) == (
        f"plugin Broken failed in Filter: KeyError: 'gpu' (tests/framework/runtime/test_plugin_call.py, line {line})"
    )


def test_telemetry_receives_plugin_calls_and_does_not_change_the_decision():
    snapshot = cluster(nodes(4), alone(60, cpu=1))
    chosen = profile(solver={"enabled": False})
    noting = Noting()
    assert decide(snapshot, chosen, NOW, 1, telemetry=noting) == decide(snapshot, chosen, NOW, 1)
    heard = set(noting.calls)
    assert ("NodeResourcesFit", "Filter") in heard
    assert ("GangScheduling", "Permit") in heard
    assert 0 < noting.calls.count(("GangScheduling", "PreFilter")) < 30
