"""The status controller: what changed is written, what did not change is not, and gangs go before pods."""

from typing import Any

import pytest

from batchsched.api.core.cluster_objects import Namespace
from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.crd.podgroup import PodGroup
from batchsched.api.decision import REASONS, Decision, Refusal
from batchsched.api.external.pod_group import SOURCE, SOURCE_UID
from batchsched.controllers.event_recorder import EventRecorder, WriteDelay
from batchsched.controllers.refusal_history import ARRIVING_SECONDS, KEEP_SECONDS, GangStatusRecords
from batchsched.controllers.status_controller import (
    FINAL_RETRY_SECONDS,
    MAX_RETRY_SECONDS,
    MAX_WRITES_PER_PERIOD,
    PERIOD_SECONDS,
    POSITIONS_SECONDS,
    StatusController,
)
from batchsched.errors import ApiError, NotLeading, Unreachable
from batchsched.kube.writer import Writer
from batchsched.state.cluster_state import ClusterState
from tests.controllers.office import Desk, known, observed
from tests.kube.virtual import Skewed
from tests.podgrouper.test_kubernetes_groups import World
from tests.session.scenario import gang, group, priority_class, queue
from tests.state.objects import ended, node, pod

pytestmark = pytest.mark.virtual_time
GROUP = "/namespaces/team/podgroups/bert/status"


class Office:
    """A controller over a cache.

    Args:
      cache: what is known of the cluster.
    """

    def __init__(self, cache: ClusterState) -> None:
        self.cache = cache
        self.desk = Desk()
        self.clock = Skewed()
        self.verdicts = GangStatusRecords()
        self.controller = self.made()

    def made(self) -> StatusController:
        server: Any = self.desk
        courtesy = WriteDelay(self.clock, lambda: False)
        self.recorder = EventRecorder(server, self.clock, courtesy, "batchsched")
        return StatusController(self.cache, self.verdicts, server, self.recorder, courtesy, self.clock)

    def refuse(
        self, *gangs: str, message: str = "2 cpu short", reason: str = "InsufficientResources"
    ) -> None:
        refusals = tuple(Refusal(pod_group=one, reason=reason, message=message) for one in gangs)
        self.controller.request_status_updates(
            self.verdicts.record_decision(
                Decision(refusals=refusals), "batchsched", gangs, {}, 3, self.clock.now()
            )
        )

    def bind(self, *names: str) -> None:
        for name in names:
            one = self.cache.get("pods", f"team/{name}")
            self.cache.put(pod(name, 99, one.metadata.uid, group="bert", on="n0"))

    @property
    def status(self) -> Any:
        """What was written of the gang last."""
        return self.desk.of(GROUP)[-1]["status"]


def office_with(*parts: Any) -> Office:
    return Office(observed([node("n0")], *parts))


def bert(count: int = 2, minimum: int | None = None) -> tuple[Any, ...]:
    made = gang("bert", count, minimum, requests={"cpu": 1})
    return made.pods, made.pod_groups


async def test_status_follows_a_gang_from_pending_to_succeeded():
    office = office_with(*bert())
    await office.controller.run_once()
    assert (office.status["phase"], office.status["placed"]) == ("Pending", 0)
    assert office.cache.assume_pod("team/bert-0", "n0", 0.0)
    assert office.cache.assume_pod("team/bert-1", "n0", 0.0)
    await office.controller.run_once()
    assert (office.status["phase"], office.status["placed"]) == ("Scheduled", 2)
    office.bind("bert-0", "bert-1")
    office.controller.request_status_updates(["team/bert"])
    await office.controller.run_once()
    assert office.status["phase"] == "Running"
    for name in ("bert-0", "bert-1"):
        office.cache.put(ended(pod(name, 100, f"uid-{name}", group="bert", on="n0")))
    await office.controller.run_once()
    assert (office.status["phase"], office.status["succeeded"]) == ("Succeeded", 2)


async def test_podgroup_with_a_class_above_its_pods_has_a_condition_that_says_what_to_change():
    above = group("bert", 2, priorityClassName="high")
    above = above.model_copy(update={"metadata": bert()[1][0].metadata})
    office = office_with([priority_class("high", 100)], bert()[0], [above])
    await office.controller.run_once()
    capped = next(one for one in office.status["conditions"] if one["type"] == "PriorityCapped")
    assert (capped["status"], capped["reason"]) == ("True", "ClassAbovePods")
    assert capped["message"] == (
        "priorityClassName high has the value 100, but the highest priority of the pods is 0, which the gang has; "
        "set priorityClassName: high in the pod template as well"
    )


async def test_status_has_the_queue_of_the_gang_also_if_the_namespace_names_it():
    def team(default: str) -> Namespace:
        return Namespace(
            metadata=ObjectMeta(name="team", labels={"scheduling.batchsched.dev/default-queue": default})
        )

    office = office_with(*bert(), [team("ml")])
    await office.controller.run_once()
    assert office.status["queue"] == "ml"
    office.cache.put(known(team("web")))
    await office.controller.run_once()
    assert office.status["queue"] == "web"


async def test_podgroup_with_a_limited_protection_has_a_condition_until_the_limit_is_gone():
    firm = group("bert", 2, preemptible=False)
    firm = firm.model_copy(update={"metadata": bert()[1][0].metadata})
    office = office_with(
        bert()[0], [firm], [queue("default", maxMinRuntimeSeconds=5), queue("a", guarantee={"cpu": "1"})]
    )
    for name in ("bert-0", "bert-1"):
        assert office.cache.assume_pod(f"team/{name}", "n0", 0.0)
    await office.controller.run_once()
    limited = next(one for one in office.status["conditions"] if one["type"] == "ProtectionLimited")
    assert (limited["status"], limited["reason"]) == ("True", "UsageAboveGuarantee")
    office.cache.remove(office.cache.get("queues", "a"))
    await office.clock.sleep(POSITIONS_SECONDS)
    await office.controller.run_once()
    assert [one["type"] for one in office.status["conditions"]] == ["Scheduled"]


async def test_confirmed_binding_is_a_separate_status_change():
    office = office_with(*bert())
    for name in ("bert-0", "bert-1"):
        assert office.cache.assume_pod(f"team/{name}", "n0", 0.0)
    await office.controller.run_once()
    office.bind("bert-0", "bert-1")
    await office.controller.run_once()
    assert office.status["phase"] == "Running"


async def test_unchanged_status_is_not_written_again():
    office = office_with(*bert())
    for _ in range(5):
        office.controller.request_status_updates(["team/bert"])
        await office.controller.run_once()
    assert len(office.desk.of(GROUP)) == 1


async def test_status_that_another_client_changed_is_written_again():
    office = office_with(*bert())
    office.desk.version = 7
    await office.controller.run_once()
    made = office.cache.get("pod_groups", "team/bert").model_dump(by_alias=True)
    for version, written in ((6, 1), (7, 1), (8, 2)):
        forged = made | {"status": {"phase": "Running", "placed": version}}
        office.cache.put(PodGroup.model_validate(forged), str(version))
        await office.controller.run_once()
        assert len(office.desk.of(GROUP)) == written
    assert (office.status["phase"], office.status["placed"]) == ("Pending", 0)


QUOTA = {"type": "QuotaReserved", "status": "True", "reason": "Quota", "message": "by another controller"}


@pytest.mark.parametrize(
    "field, key, path, own, forged",
    [
        ("pod_groups", "team/bert", GROUP, "Scheduled", {"placed": 9}),
        ("queues", "default", "/queues/default/status", "Active", {"pending": 9}),
    ],
    ids=["PodGroup", "Queue"],
)
async def test_conditions_of_other_controllers_stay_and_do_not_count_as_a_changed_status(
    field, key, path, own, forged
):
    office = office_with(*bert(), [queue("default")])
    office.desk.version = 7
    await office.controller.run_once()

    async def written_after(foreign: list[Any], **changed: Any) -> list[list[tuple[str, str]]]:
        """Let the API server show the written status with changes, and return the conditions written after that."""
        before = office.desk.of(path)
        status = {name: value for name, value in before[-1]["status"].items() if value is not None}
        conditions = [*(one for one in status["conditions"] if one["type"] == own), *foreign]
        stored = office.cache.get(field, key)
        shown = stored.model_dump(by_alias=True) | {"status": status | {"conditions": conditions} | changed}
        office.cache.put(type(stored).model_validate(shown), str(office.desk.version + 1))
        office.desk.version += 2
        await office.clock.sleep(POSITIONS_SECONDS)
        await office.controller.run_once()
        return [
            [(one["type"], one["status"]) for one in write["status"]["conditions"]]
            for write in office.desk.of(path)[len(before) :]
        ]

    refused = QUOTA | {"status": "False"}
    assert await written_after([QUOTA]) == []
    office.bind("bert-0", "bert-1")
    assert await written_after([QUOTA]) == [[("QuotaReserved", "True"), (own, "True")]]
    assert await written_after([refused]) == []
    assert await written_after([refused], **forged) == [[("QuotaReserved", "False"), (own, "True")]]
    assert await written_after([]) == []
    assert await written_after([], **forged) == [[(own, "True")]]


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
async def test_next_leader_writes_only_status_that_is_not_written_yet_or_that_another_client_changed(phase):
    office = office_with(*bert())
    await office.controller.run_once()
    made = known(group("bert", 2)).model_dump(by_alias=True)
    written = {name: value for name, value in office.status.items() if value is not None}
    office.cache.put(PodGroup.model_validate(made | {"status": written}), "7")
    leader = office.made()
    await leader.run_once()
    assert len(office.desk.of(GROUP)) == 1
    office.cache.put(PodGroup.model_validate(made | {"status": written | {"phase": phase}}), "8")
    await leader.run_once()
    assert len(office.desk.of(GROUP)) == 2
    assert office.status["phase"] == "Pending"


async def test_recreated_pod_group_has_a_new_status():
    office = office_with(*bert())
    await office.controller.run_once()
    made = group("bert", 2).model_dump(by_alias=True)
    made["metadata"]["uid"] = "another"
    office.cache.put(PodGroup.model_validate(made))
    await office.controller.run_once()
    assert len(office.desk.of(GROUP)) == 2


async def test_pod_group_that_is_not_in_the_api_yet_is_not_written():
    office = office_with(bert()[0])
    office.cache.put(group("bert", 2))
    await office.controller.run_once()
    assert not office.desk.of(GROUP)


async def test_condition_of_refused_pods_is_written_once():
    office = office_with(*bert())
    for _ in range(4):
        office.refuse("team/bert")
        await office.controller.run_once()
    for at in range(2):
        (written,) = office.desk.of(f"/pods/bert-{at}/status")
        (condition,) = written["status"]["conditions"]
        assert condition["message"] == "0/3 nodes are available: PodGroup team/bert: 2 cpu short."


def pod_conditions(office: Office, name: str) -> list[tuple[str, str]]:
    """Status and reason of each written condition of a pod, the oldest first."""
    written = [one["status"]["conditions"][0] for one in office.desk.of(f"/pods/{name}/status")]
    return [(one["status"], one["reason"]) for one in written]


@pytest.mark.parametrize("reason", sorted(REASONS))
async def test_pods_are_unschedulable_only_if_new_nodes_may_help_their_gang(reason):
    office = office_with(*bert())
    office.refuse("team/bert", reason=reason)
    await office.clock.sleep(ARRIVING_SECONDS)
    office.refuse("team/bert", reason=reason)
    await office.controller.run_once()
    helped = {
        "NoNodes",
        "NoFeasibleNode",
        "InsufficientResources",
        "InsufficientTopologyCapacity",
        "PluginConstraint",
    }
    assert pod_conditions(office, "bert-0") == [("False", "Unschedulable" if reason in helped else reason)]


async def test_condition_of_pods_changes_with_the_reason_even_if_the_message_stays():
    office = office_with(*bert())
    office.refuse("team/bert")
    await office.controller.run_once()
    await office.clock.sleep(KEEP_SECONDS)
    office.refuse("team/bert", reason="QueueLimit")
    await office.controller.run_once()
    assert pod_conditions(office, "bert-1") == [("False", "Unschedulable"), ("False", "QueueLimit")]


async def test_condition_of_a_refused_single_pod_is_written_unless_the_pod_was_bound_meanwhile():
    office = office_with([pod("solo"), pod("late")])
    office.refuse("team/solo", "team/late")
    office.cache.put(pod("late", 99, "uid-late", on="n0"))
    await office.controller.run_once()
    assert len(office.desk.of("/pods/solo/status")) == 1
    assert not office.desk.of("/pods/late/status")


async def test_condition_of_a_pod_that_joins_a_refused_gang_is_written():
    office = office_with(*bert())
    office.refuse("team/bert")
    await office.controller.run_once()
    office.cache.put(pod("bert-9", uid="u9", group="bert"))
    office.refuse("team/bert")
    await office.controller.run_once()
    assert len(office.desk.of("/pods/bert-9/status")) == 1


async def test_ten_thousand_pods_are_written_in_batches_after_the_gangs():
    count = 10_000
    office = office_with(*bert(count))
    office.refuse("team/bert")
    await office.controller.run_once()
    assert len(office.desk.of(GROUP)) == 1
    assert len(office.desk.sent) <= MAX_WRITES_PER_PERIOD
    office.refuse("team/bert", message="1 cpu short")  # not worth ten thousand writes
    for _ in range(count // MAX_WRITES_PER_PERIOD + 2):
        await office.controller.run_once()
    assert len(office.desk.of("/pods/")) == count


async def test_positions_and_queues_are_updated_periodically():
    office = office_with(*bert(), [queue("default")])
    await office.controller.run_once()
    assert office.status["queuePosition"] == 1
    office.cache.put(known(group("ernie", 1, age=100)))
    office.cache.put(known(pod("ernie-0", group="ernie")))
    await office.controller.run_once()
    assert office.status["queuePosition"] == 1
    await office.clock.sleep(POSITIONS_SECONDS)
    await office.controller.run_once()
    assert office.status["queuePosition"] == 2
    assert office.desk.of("/queues/default/status")[-1]["status"]["pending"] == 2


@pytest.mark.parametrize(
    "fault",
    [
        Unreachable("no answer"),
        ApiError(500, "InternalError", "etcdserver: leader changed"),
        ApiError(502, "", "bad gateway"),
        ApiError(429, "TooManyRequests", "busy"),
        ApiError(409, "Conflict", "another client writes it"),
    ],
    ids=["unreachable", "500", "502", "429", "409"],
)
async def test_write_is_repeated_if_the_server_could_not_carry_it_out(fault, caplog):
    office = office_with(*bert(), [pod("solo")])
    office.refuse("team/solo")
    office.desk.fail(fault, fault, fault, fault)  # the PodGroup and the pod, twice
    for _ in range(6):
        await office.controller.run_once()
        await office.clock.sleep(PERIOD_SECONDS)
    assert len(office.desk.of(GROUP)) == 1
    assert len(office.desk.of("/pods/solo/status")) == 1
    assert caplog.text.count("the status of team/bert is not written yet") == 1


@pytest.mark.parametrize("status", [403, 404, 422])
async def test_write_that_the_server_refuses_is_not_repeated(status):
    office = office_with(*bert())
    office.desk.fail(ApiError(status, "", "no"))
    for _ in range(6):
        await office.controller.run_once()
        await office.clock.sleep(PERIOD_SECONDS)
    assert not office.desk.of(GROUP)


async def test_status_that_the_server_never_takes_is_repeated_less_and_less_and_delays_no_other():
    others = gang("other", 1, requests={"cpu": 1})
    office = office_with(*bert())
    office.desk.fail(*[ApiError(500, "InternalError", "a webhook fails")] * 1000)
    begun = len(office.desk.failing)
    for _ in range(1200):
        await office.controller.run_once()
        await office.clock.sleep(PERIOD_SECONDS)
    assert 10 <= begun - len(office.desk.failing) <= 20
    office.desk.failing.clear()
    for part in (others.pod_groups, others.pods):
        for one in part:
            office.cache.put(known(one))
    await office.controller.run_once()
    assert len(office.desk.of("/podgroups/other/status")) == 1
    assert not office.desk.of(GROUP)


async def fail_until_the_delay_is_long(office: Office) -> None:
    """Let writes fail for a minute, and accept those after that."""
    office.desk.fail(*[ApiError(500, "InternalError", "a webhook fails")] * 1000)
    for _ in range(120):
        await office.controller.run_once()
        await office.clock.sleep(PERIOD_SECONDS)
    office.desk.failing.clear()


async def test_retry_of_a_deleted_pod_group_does_not_delay_a_new_one_of_its_name():
    office = office_with(*bert())
    await fail_until_the_delay_is_long(office)
    made = known(group("bert", 2)).model_dump(by_alias=True)
    made["metadata"]["uid"] = "another"
    office.cache.put(PodGroup.model_validate(made))
    await office.controller.run_once()
    assert len(office.desk.of(GROUP)) == 1


async def test_pod_group_that_changes_is_tried_again_at_once():
    office = office_with(*bert())
    office.cache.put(known(group("bert", 2)), "7")
    await fail_until_the_delay_is_long(office)
    await office.controller.run_once()
    assert not office.desk.of(GROUP)
    office.cache.put(known(group("bert", 1)), "8")
    await office.controller.run_once()
    assert len(office.desk.of(GROUP)) == 1


@pytest.mark.parametrize("retry_after, seconds", [(3.0, 3.0), (300.0, MAX_RETRY_SECONDS)])
async def test_busy_server_delays_a_status_by_what_it_asks_for_within_a_bound(retry_after, seconds):
    office = office_with(*bert())
    office.desk.fail(*[ApiError(429, "TooManyRequests", "busy", retry_after)] * 3)
    begun = office.clock.monotonic()
    while not office.desk.of(GROUP):
        await office.controller.run_once()
        await office.clock.sleep(PERIOD_SECONDS)
    assert 3 * seconds <= office.clock.monotonic() - begun <= 3 * seconds + 2 * PERIOD_SECONDS


async def test_write_for_which_the_server_is_busy_delays_no_other_status():
    """A real Writer repeats a patient write itself, for a minute."""
    others = gang("other", 1, requests={"cpu": 1})
    office = office_with(*bert(), others.pods, others.pod_groups)

    class Busy:
        async def request(self, method: str, path: str, *, body: bytes, **_: Any) -> bytes:
            if "bert" in path:
                raise ApiError(429, "TooManyRequests", "busy", 30.0)
            return await office.desk.send(method, path, body)

    connection: Any = Busy()
    office.controller._writer = Writer(connection, office.clock)
    begun = office.clock.monotonic()
    await office.controller.run_once()
    assert len(office.desk.of("/podgroups/other/status")) == 1
    assert office.clock.monotonic() - begun < PERIOD_SECONDS


async def test_failing_group_of_a_tree_delays_no_other_group_of_it():
    world = World()
    world.cache.put(node("n0"))
    world.composite("tree", minimum=2)
    for name in ("first", "second"):
        world.group(name, "tree")
        world.pod(f"{name}-0", name)
    office = Office(world.cache)
    fault = ApiError(500, "InternalError", "a webhook fails")
    accept = office.desk.send

    async def refuse_first(method: str, path: str, body: bytes, *rest: Any, **more: Any) -> bytes:
        if "/first/" in path:
            raise fault
        return await accept(method, path, body, *rest, **more)

    office.desk.send = refuse_first  # type: ignore[method-assign]
    office.refuse("team/tree")
    for _ in range(160):
        await office.controller.run_once()
        await office.clock.sleep(PERIOD_SECONDS)
    assert len(office.desk.of("/second/status")) == 1
    await office.clock.sleep(KEEP_SECONDS)
    office.refuse("team/tree", message="3 cpu short")
    await office.controller.run_once()
    assert len(office.desk.of("/second/status")) == 2
    assert not office.desk.of("/first/status")


async def test_overwritten_status_is_restored_also_if_the_first_attempt_fails():
    office = office_with(*bert())
    office.desk.version = 7
    await office.controller.run_once()
    forged = known(group("bert", 2)).model_dump(by_alias=True) | {"status": {"phase": "Running"}}
    office.cache.put(PodGroup.model_validate(forged), "8")
    office.desk.fail(ApiError(500, "InternalError", "no"))
    for _ in range(3):
        await office.controller.run_once()
        await office.clock.sleep(PERIOD_SECONDS)
    assert len(office.desk.of(GROUP)) == 2


async def test_patch_names_the_version_from_which_its_status_was_computed():
    office = office_with(*bert())
    made = known(group("bert", 2))
    office.cache.put(made, "5")
    office.desk.version = 7
    await office.controller.run_once()
    office.bind("bert-0", "bert-1")
    office.desk.fail(ApiError(409, "Conflict", "another client changed it"))
    await office.controller.run_once()
    shown = made.model_dump(by_alias=True) | {"status": office.status | {"conditions": [QUOTA]}}
    office.cache.put(PodGroup.model_validate(shown), "9")
    await office.controller.run_once()
    first, second = office.desk.of(GROUP)
    assert [write["metadata"] for write in (first, second)] == [
        {"resourceVersion": "5"},
        {"resourceVersion": "9"},
    ]
    assert [one["type"] for one in second["status"]["conditions"]] == ["QuotaReserved", "Scheduled"]


async def test_pod_that_was_replaced_is_dropped_without_a_warning(caplog):
    office = office_with([pod("solo")])
    office.refuse("team/solo")
    office.desk.fail(ApiError(422, "Invalid", "metadata.uid: Invalid value: field is immutable"))
    for _ in range(3):
        await office.controller.run_once()
        await office.clock.sleep(PERIOD_SECONDS)
    assert not office.desk.sent
    assert not caplog.records
    office.cache.put(pod("solo", 9, "another"))
    office.refuse("team/solo")
    await office.controller.run_once()
    (written,) = office.desk.of("/pods/solo/status")
    assert written["metadata"] == {"uid": "another"}


async def test_leader_that_shuts_down_repeats_failed_writes_for_some_seconds():
    office = office_with(*bert())
    office.desk.fail(*[ApiError(500, "InternalError", "no")] * 2)
    await office.controller.write_all_queued_status()
    assert len(office.desk.of(GROUP)) == 1
    office.bind("bert-0", "bert-1")
    office.desk.fail(*[ApiError(500, "InternalError", "no")] * 1000)
    begun = office.clock.monotonic()
    await office.controller.write_all_queued_status()
    assert office.clock.monotonic() - begun <= 2 * FINAL_RETRY_SECONDS


async def test_no_write_is_retried_when_another_replica_may_lead():
    office = office_with(*bert())
    office.desk.fail(NotLeading("the lease may be lost"))
    await office.controller.write_all_queued_status()
    assert not office.desk.sent


async def test_gang_has_one_event_when_it_is_scheduled():
    office = office_with(*bert())
    office.bind("bert-0", "bert-1")
    await office.controller.run_once()
    office.cache.put(pod("bert-1", 200, "uid-bert-1", group="bert", on="n0", labels={"a": "b"}))
    office.controller.request_status_updates(["team/bert"])
    await office.controller.run_once()
    assert office.recorder.queued_count == 1


async def test_kubernetes_pod_group_has_a_scheduled_condition_and_those_of_other_schedulers_do_not():
    pods, (made,) = bert()
    for version, path in (
        ("scheduling.k8s.io/v1beta1", "/apis/scheduling.k8s.io/v1beta1" + GROUP),
        ("scheduling.volcano.sh/v1beta1", ""),
    ):
        marks = {SOURCE: version, SOURCE_UID: "of-another"}
        meta = made.metadata.model_copy(update={"annotations": marks, "uid": ""})

        office = office_with(pods)
        office.cache.put(made.model_copy(update={"metadata": meta}))
        office.bind("bert-0", "bert-1")
        for _ in range(3):
            await office.controller.run_once()
        written = [(where, body) for _, where, body in office.desk.sent if "podgroups" in where]
        assert [where for where, _ in written] == ([path] if path else [])
        for _, body in written:
            assert body["metadata"] == {"uid": "of-another"}
            (condition,) = body["status"]["conditions"]
            assert (condition["type"], condition["status"]) == ("PodGroupInitiallyScheduled", "True")


async def test_gang_of_which_the_status_cannot_be_computed_or_sent_keeps_no_other_from_its_status(
    monkeypatch, caplog
):
    others = gang("other", 1, requests={"cpu": 1})
    office = office_with(*bert(), others.pods, others.pod_groups)
    compute = office.controller._numbers

    def fail_for_bert(key: str) -> Any:
        if key == "team/bert":
            raise ZeroDivisionError("a defect")
        return compute(key)

    monkeypatch.setattr(office.controller, "_numbers", fail_for_bert)
    for _ in range(3):
        office.refuse("team/bert", "team/other")
        await office.controller.run_once()
    assert office.desk.of(GROUP) == []
    assert len(office.desk.of("/podgroups/other/status")) == 1
    assert caplog.text.count("the status of pod_groups team/bert is not written") == 1
