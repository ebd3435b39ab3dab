"""What every test shares: how many examples hypothesis draws, where a browser is, a control plane, an event loop."""

import asyncio
import inspect
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from typing_extensions import override

from tests.controlplane.fixtures import namespace, own_plane, plane, proxy
from tests.kube.virtual import run

__all__ = ["namespace", "own_plane", "plane", "proxy"]

# Two cores are shared with other work, so a slow draw says nothing about the code: no deadline, no complaint.
_ALWAYS = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])

# `ci` repeats itself run by run; `full` draws new ones, at least 500 examples a property. Tests state no
# numbers of their own, so that a profile is the one place to turn.
settings.register_profile("ci", _ALWAYS, max_examples=60, derandomize=True)
settings.register_profile("full", _ALWAYS, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse bytes as a test id: they may contain a time (gzip), and xdist requires equal ids in all workers."""
    nameless = [item.nodeid for item in items if "\\x" in item.nodeid]
    if nameless:
        raise pytest.UsageError("give these parameters ids that can be read: " + ", ".join(nameless))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    run_test = run if pyfuncitem.get_closest_marker("virtual_time") else asyncio.run
    run_test(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


class _Records(logging.Handler):
    """Keeps the records of a logger."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture(autouse=True)
def _no_solution_is_discarded(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test in which the solver discards a solution: the greedy one in its place is legal, but worse."""
    logger, records = logging.getLogger("batchsched.solver.stage"), _Records()
    logger.addHandler(records)
    yield
    logger.removeHandler(records)
    if request.node.get_closest_marker("discards_solutions") is None:
        assert records.messages == []


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a browser; without one the test is skipped, or fails where a browser is required."""
    named = os.environ.get("CHROMIUM")
    found = (
        named if named and Path(named).exists() else next(filter(None, map(shutil.which, _BROWSERS)), None)
    )
    if found is None:
        reason = "no browser: set CHROMIUM, or install chromium"
        if os.environ.get("BATCHSCHED_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return found
