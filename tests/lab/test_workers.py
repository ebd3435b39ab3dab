import sys
from concurrent.futures import Future
from types import ModuleType

import psutil
import pytest

from batchsched.errors import InvalidInput, Unreachable
from batchsched.lab.workers import open_workers


def test_local_worker_processes_return_futures_and_end_with_the_context():
    with open_workers(None, 2) as crew:
        assert [one.result() for one in [crew.submit(abs, -1), crew.submit(abs, -2)]] == [1, 2]
    assert [one for one in psutil.Process().children() if "spawn_main" in " ".join(one.cmdline())] == []


def test_local_workers_end_after_an_interrupt():
    def interrupted(crew):
        assert crew.submit(abs, -1).result() == 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), open_workers(None, 2) as crew:
        interrupted(crew)
    assert [one for one in psutil.Process().children() if "spawn_main" in " ".join(one.cmdline())] == []


@pytest.mark.parametrize("address", ["http://x:1", "localhost:8786", ""])
def test_an_address_of_an_unknown_kind_is_refused(address):
    with pytest.raises(InvalidInput, match="Dask scheduler or ray"), open_workers(address, 1):
        pass


@pytest.mark.parametrize("module, address", [("distributed", "tcp://h:1"), ("ray", "ray://h:1")])
def test_a_missing_package_is_reported_with_the_command_that_installs_it(monkeypatch, module, address):
    monkeypatch.setitem(sys.modules, module, None)
    package = "distributed" if module == "distributed" else r"ray\[client\]"
    with pytest.raises(InvalidInput, match=f"run: pip install '{package}'"), open_workers(address, 1):
        pass


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr("batchsched.lab.workers.CONNECT_TIMEOUT", "1s")
    answer = r"no Dask scheduler answers at tcp://127\.0\.0\.1:1"
    with pytest.raises(Unreachable, match=answer), open_workers("tcp://127.0.0.1:1", 1):
        pass


class Rays(ModuleType):
    """As much of Ray as is used: what is remote runs at once."""

    def __init__(self, refuses=False):
        super().__init__("ray")
        self.told = []
        self._refuses = refuses

    def init(self, address, **_):
        if self._refuses:
            raise ConnectionError("no server")
        self.told.append(address)

    def shutdown(self):
        self.told.append("shutdown")

    def remote(self, function):
        class Remote:
            def remote(self, argument):
                return self

            def future(self):
                made: Future[int] = Future()
                made.set_result(function(-3))
                return made

        return Remote()


def test_ray_tasks_are_returned_as_futures(monkeypatch):
    rays = Rays()
    monkeypatch.setitem(sys.modules, "ray", rays)
    with open_workers("ray://head:10001", 1) as crew:
        assert crew.submit(abs, -3).result() == 3
    assert rays.told == ["ray://head:10001", "shutdown"]


def test_a_ray_cluster_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", Rays(refuses=True))
    with pytest.raises(Unreachable, match="no Ray cluster"), open_workers("ray://head:1", 1):
        pass
