"""The protection of running gangs is limited by the guarantee of their queue and by its maxMinRuntimeSeconds."""

from typing import Any

import msgspec

from batchsched.api.core.metadata import format_timestamp
from batchsched.api.core.pod import PodStatus
from batchsched.controllers.protection_limits import protection_limited_reasons_by_gang
from tests.controllers.office import observed
from tests.session.scenario import group, queue
from tests.state.objects import node, pod


def running_gang(name: str, cpus: int, **spec: Any) -> tuple[Any, ...]:
    """A gang of one pod on node n0, which started at second 1000."""
    status = PodStatus(start_time=format_timestamp(1000))
    one = msgspec.structs.replace(pod(f"{name}-0", group=name, on="n0", cpu=cpus), status=status)
    return [one], [group(name, 1, **spec)]


def test_protection_is_limited_for_the_gangs_of_a_queue_that_uses_more_than_its_guarantee_by_them():
    firm, lasting = {"preemptible": False}, {"minRuntimeSeconds": 600}
    cache = observed(
        [
            node("n0", cpu="80"),
            queue("big", guarantee={"cpu": "40"}),
            queue("small", guarantee={"cpu": "10"}),
        ],
        *running_gang("within", 40, queue="big", **firm),
        *running_gang("firm", 6, queue="small", **firm),
        *running_gang("lasting", 5, queue="small", **lasting),
        *running_gang("plain", 20, queue="small"),
    )
    found = protection_limited_reasons_by_gang(cache, 1500)
    assert {name: reason for name, (reason, _) in found.items()} == dict.fromkeys(
        ("team/firm", "team/lasting"), "UsageAboveGuarantee"
    )
    assert found["team/firm"][1] == (
        "the protected gangs of queue small use more than its guarantee (cpu 11, guarantee 10), so another queue that "
        "needs its own guarantee may evict this gang; use a queue with a larger guarantee"
    )
    # After its minimum run time, a gang is not protected.
    assert protection_limited_reasons_by_gang(cache, 1601) == {}


def test_protection_is_not_limited_if_no_queue_has_a_guarantee():
    cache = observed([node("n0", cpu="80")], *running_gang("firm", 70, preemptible=False))
    assert protection_limited_reasons_by_gang(cache, 1500) == {}


def test_protection_is_limited_for_a_gang_with_a_longer_minimum_run_time_than_its_queue_allows():
    cache = observed(
        [node("n0", cpu="80"), queue("all", maxMinRuntimeSeconds=60), queue("ml", parent="all")],
        *running_gang("long", 6, queue="ml", minRuntimeSeconds=61),
        *running_gang("short", 6, queue="ml", minRuntimeSeconds=60),
    )
    ((reason, message),) = protection_limited_reasons_by_gang(cache, 1500).values()
    assert reason == "RuntimeAboveMaximum"
    assert message == (
        "minRuntimeSeconds is 61, but queue ml allows at most 60, which applies; "
        "lower it, or raise maxMinRuntimeSeconds of the queue"
    )
