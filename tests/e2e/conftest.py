"""What end-to-end tests share: a scheduler that is alone, and a namespace of a test's own."""

from collections.abc import Iterator

import pytest

from tests.controlplane.devices import RESOURCES
from tests.controlplane.fixtures import Namespace, eventually
from tests.controlplane.plane import ControlPlane
from tests.e2e.running import Scheduler, pods, running


@pytest.fixture(scope="module")
def scheduler(plane: ControlPlane) -> Iterator[Scheduler]:
    """A scheduler that is alone and knows the cluster, for all tests of a module."""
    one = Scheduler(plane, ("--no-leader-elect",))
    with running(one):
        eventually(lambda: one.follows)
        yield one


@pytest.fixture
def team(plane: ControlPlane, scheduler: Scheduler, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace of the test's own. Its Jobs and pods, and all nodes and devices, are gone afterwards."""
    name = request.node.name.replace("_", "-")[:60].rstrip("-")
    plane.admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
    namespace = Namespace(plane.admin, name)
    yield namespace
    at_once = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    background = at_once | {"propagationPolicy": "Background"}
    plane.admin.call("DELETE", namespace.path("jobs", group="batch/v1"), background)
    plane.admin.call("DELETE", namespace.path("pods"), at_once)
    plane.admin.call("DELETE", "/api/v1/nodes", at_once)
    plane.admin.call("DELETE", f"{RESOURCES}/resourceslices", at_once)
    eventually(lambda: not pods(namespace))
