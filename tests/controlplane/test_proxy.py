"""The bad network does what its rules say, and nothing else."""

import time

import pytest
import urllib3

from tests.controlplane.plane import ADMIN
from tests.controlplane.proxy import Ending, cut, delayed, hung, lost, page, refused, status


@pytest.fixture
def ask(proxy):
    with urllib3.PoolManager(retries=False) as pool:

        def asking(method="GET", path="/api/v1/namespaces", body=None, timeout=2.0, **more):
            headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
            return pool.request(method, proxy.url + path, json=body, headers=headers, timeout=timeout, **more)

        yield asking


def test_without_a_rule_everything_passes(ask, proxy):
    assert ask().json()["kind"] == "NamespaceList"
    assert proxy.count("GET", "namespaces$") == 1


def test_a_rule_applies_to_the_stated_number_of_matching_requests(ask, proxy):
    rule = proxy.on(status(429, "TooManyRequests", retry_after=7), path="namespaces", skip=1, count=1)
    assert ask(path="/version").status == 200
    assert [ask().status for _ in range(3)] == [200, 429, 200]
    assert rule.hits == 1


def test_refusals_contain_retry_after_or_an_html_page(ask, proxy):
    proxy.on(status(429, "TooManyRequests", retry_after=7), count=1)
    proxy.on(page(502))
    assert ask().headers["Retry-After"] == "7"
    assert ask().data.startswith(b"<html>")


@pytest.mark.parametrize("fault", [refused(), lost(), cut(20)], ids=["refused", "lost", "cut"])
def test_a_reset_connection_is_an_error_to_the_client(ask, proxy, fault):
    proxy.on(fault)
    with pytest.raises(urllib3.exceptions.ProtocolError):
        ask()


def test_lost_requests_are_executed_and_refused_ones_are_not(ask, proxy, namespace):
    path = namespace.path("configmaps")
    for name, fault in (("first", lost()), ("second", refused())):
        proxy.on(fault, method="POST", count=1)
        with pytest.raises(urllib3.exceptions.ProtocolError):
            ask("POST", path, {"metadata": {"name": name}})
    assert [one["metadata"]["name"] for one in ask(path=path).json()["items"]] == ["first"]


@pytest.mark.parametrize(
    "fault", [hung(), lost(Ending.STALL), cut(20, Ending.STALL)], ids=["hung", "lost", "cut"]
)
def test_a_hung_request_ends_at_the_timeout_of_the_client(ask, proxy, fault):
    proxy.on(fault)
    with pytest.raises(urllib3.exceptions.ReadTimeoutError):
        ask(timeout=0.3)


def test_an_answer_that_ends_early_looks_whole(ask, proxy):
    proxy.on(cut(20, Ending.END))
    assert len(ask().data) == 20


def test_a_partition_holds_all_requests_until_its_end(ask, proxy):
    with proxy.partitioned(), pytest.raises(urllib3.exceptions.ReadTimeoutError):
        ask(timeout=0.3)
    assert ask().status == 200


def test_a_response_can_be_delayed(ask, proxy):
    proxy.on(delayed(0.3))
    begun = time.monotonic()
    assert ask().status == 200
    assert time.monotonic() - begun >= 0.3


def test_injected_lines_reach_the_open_watches_of_a_collection(ask, proxy, namespace):
    path = namespace.path("configmaps")
    assert proxy.inject(path, b"{}") == 0
    watch = ask(path=f"{path}?watch=true&timeoutSeconds=2", timeout=5.0, preload_content=False)
    assert proxy.inject(path, b'{"a": 1}', b'{"b": 2}') == 1
    assert b'{"a": 1}\n{"b": 2}\n' in watch.read()
