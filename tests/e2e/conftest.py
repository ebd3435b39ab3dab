"""What end-to-end tests share: a scheduler that is alone."""

from collections.abc import Iterator

import pytest

from tests.controlplane.fixtures import eventually
from tests.controlplane.plane import ControlPlane
from tests.e2e.running import Scheduler, running


@pytest.fixture(scope="module")
def scheduler(plane: ControlPlane) -> Iterator[Scheduler]:
    """A scheduler that is alone and knows the cluster, for all tests of a module."""
    one = Scheduler(plane, ("--no-leader-elect",))
    with running(one):
        eventually(lambda: one.follows)
        yield one
