"""Several replicas and a single one: the leader reports its role, and each writes its log in the configured format."""

import contextlib
import json

from batchsched.controllers.scheduler_names import (
    SCHEDULER_NAME_LEASE_NAMESPACE,
    lease_name_of_scheduler_name,
)
from tests.controlplane.fixtures import eventually
from tests.controlplane.installed import NAMESPACE, service_account
from tests.controlplane.plane import ApiFault
from tests.controlplane.process import LEASE
from tests.e2e.serving import WITHIN, Served, bind_a_gang, serving


def test_standby_replica_is_ready_and_decides_nothing(plane, namespace, tmp_path):
    namespace.nodes(2)
    service_account(plane)  # with its namespace
    lease = ("--lease", f"{NAMESPACE}/batchsched")
    pair = [Served(plane, f"replica-{at}", tmp_path / f"{at}.yaml", lease) for at in range(2)]
    with serving(*pair):

        def leads(one: Served) -> bool:
            return one.metric("leader_election_master_status", name="batchsched") == 1

        eventually(lambda: any(leads(one) for one in pair), WITHIN)
        bind_a_gang(namespace)
        assert sum(leads(one) for one in pair) == 1
        idle = next(one for one in pair if not leads(one))
        assert idle.read("/debug/sessions") == []
        assert idle.read("/debug/queue") == {}


def test_log_of_a_process_is_one_object_a_line(plane, namespace, tmp_path):
    namespace.nodes(1)
    arguments = ("--no-leader-elect", "--logging-format", "json", "-vv")
    one = Served(plane, "json", tmp_path / "batchsched.yaml", arguments)
    with serving(one):
        bind_a_gang(namespace, pods=1)
        one.scheduler.end()
    lines = [json.loads(line) for line in one.scheduler.log.read_text().splitlines()]
    assert {"Session decided", "Successfully bound pod to node"} <= {line["msg"] for line in lines}


def test_second_deployment_with_the_same_scheduler_name_is_reported(plane, namespace, tmp_path):
    # A scheduler of an earlier test may have left its claim, which would be valid for another minute.
    with contextlib.suppress(ApiFault):
        plane.admin.delete(
            f"/apis/coordination.k8s.io/v1/namespaces/{SCHEDULER_NAME_LEASE_NAMESPACE}/leases/{lease_name_of_scheduler_name('batchsched')}"
        )
    first = Served(plane, "first", tmp_path / "first.yaml", ("--lease", LEASE))
    second = Served(plane, "second", tmp_path / "second.yaml")
    with serving(first):
        eventually(lambda: first.metric("leader_election_master_status", name="batchsched") == 1, WITHIN)
        names = {"profile": "batchsched", "deployment": LEASE}
        with serving(second):
            eventually(lambda: second.metric("batchsched_scheduler_name_conflict", **names) == 1, WITHIN)
            path = f"/apis/events.k8s.io/v1/namespaces/{SCHEDULER_NAME_LEASE_NAMESPACE}/events"
            events = eventually(lambda: plane.admin.get(path)["items"], WITHIN)
            assert {(event["reason"], event["type"]) for event in events} == {
                ("SchedulerNameConflict", "Warning")
            }
            assert events[0]["regarding"]["name"] == "scheduler-name-batchsched"
            assert f"the deployments {LEASE} and " in events[0]["note"]
            assert second.ready
        assert not any(name == "batchsched_scheduler_name_conflict" for name, _ in first.metrics)
