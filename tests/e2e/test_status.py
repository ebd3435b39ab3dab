"""Status, conditions and Events on a real API server: what users see of their gangs."""

import json
from typing import Any

import pytest

from batchsched.cli import ExitCode, run_command
from batchsched.cli.queues import EXPLAIN
from tests.controlplane.fixtures import Namespace, eventually
from tests.controlplane.plane import ControlPlane
from tests.e2e.running import Scheduler, all_bound, condition, group, make

pytestmark = pytest.mark.usefixtures("scheduler")
API = "scheduling.batchsched.dev/v1alpha1"
SOON = 60.0


def status(namespace: Namespace, gang: str) -> dict[str, Any]:
    found: dict[str, Any] = namespace.api.get(namespace.path("podgroups", gang, group=API))
    return dict(found.get("status", {}))


def scheduled(found: dict[str, Any]) -> dict[str, Any]:
    """The condition `Scheduled`."""
    return next((one for one in found.get("conditions", ()) if one["type"] == "Scheduled"), {})


def events(namespace: Namespace, about: str) -> dict[str, dict[str, Any]]:
    """The Events of an object by reason."""
    found = namespace.api.get(namespace.path("events", group="events.k8s.io/v1"))["items"]
    return {one["reason"]: one for one in found if one["regarding"]["name"] == about}


def test_status_of_a_gang_follows_its_pods(namespace):
    namespace.nodes(1)
    namespace.gang("bert", 3)
    all_bound(namespace, "bert", 3, SOON)
    eventually(lambda: status(namespace, "bert").get("phase") == "Running", SOON)
    eventually(lambda: status(namespace, "bert").get("running") == 3, SOON)
    found = status(namespace, "bert")
    assert (found["placed"], found["failed"], found["succeeded"]) == (3, 0, 0)
    assert scheduled(found)["status"] == "True"
    assert "queuePosition" not in found


def test_status_of_a_refused_gang_has_reason_shortage_and_relaxation(namespace):
    namespace.nodes(2, cpu=4)
    namespace.gang("bert", 3, cpu=4)
    eventually(lambda: scheduled(status(namespace, "bert")).get("reason") == "InsufficientResources", SOON)
    eventually(lambda: status(namespace, "bert").get("queuePosition") == 1, SOON)
    found = status(namespace, "bert")
    assert found["phase"] == "Pending"
    message = scheduled(found)["message"]
    assert "cpu" in message
    assert "would help" in message
    eventually(lambda: condition(namespace, "bert-0"), SOON)
    said = condition(namespace, "bert-0")
    assert (said["status"], said["reason"]) == ("False", "Unschedulable")
    assert said["message"].startswith("0/2 nodes are available: PodGroup ")
    namespace.nodes(1, prefix="more", cpu=4)
    all_bound(namespace, "bert", 3, SOON)
    eventually(lambda: scheduled(status(namespace, "bert")).get("status") == "True", SOON)
    assert "queuePosition" not in status(namespace, "bert")


def test_conditions_and_events_of_a_refused_gang_get_the_verified_text_without_another_session(namespace):
    namespace.nodes(2, cpu=4)
    namespace.gang("bert", 3, cpu=4)

    def shown() -> str:
        return str(scheduled(status(namespace, "bert")).get("message", ""))

    eventually(lambda: "would help: 1 more node like " in shown(), SOON)
    text = shown()
    eventually(lambda: text in condition(namespace, "bert-0")["message"], SOON)
    eventually(lambda: events(namespace, "bert")["GangRefused"]["note"].endswith(text), SOON)


def test_pods_that_wait_for_a_queue_limit_do_not_make_autoscalers_add_nodes(namespace):
    namespace.nodes(1, cpu=4)
    namespace.queue(f"{namespace.name}-capped", limit={"cpu": "1"})
    group(namespace, "bert", 2, queue=f"{namespace.name}-capped")
    namespace.pods(2, prefix="bert", gang="bert", cpu=1)
    eventually(lambda: condition(namespace, "bert-0").get("reason") == "QueueLimit", SOON)
    assert condition(namespace, "bert-0")["status"] == "False"


def test_events_have_the_messages_of_kube_scheduler(namespace):
    namespace.nodes(1, cpu=1)
    namespace.gang("bert", 2, cpu=1)
    eventually(lambda: "FailedScheduling" in events(namespace, "bert-1"), SOON)
    failed = events(namespace, "bert-1")["FailedScheduling"]
    assert (failed["type"], failed["action"]) == ("Warning", "Scheduling")
    assert failed["reportingController"] == "batchsched"
    assert failed["note"].startswith("0/1 nodes are available: ")
    eventually(lambda: "GangRefused" in events(namespace, "bert"), SOON)
    namespace.nodes(1, prefix="more", cpu=1)
    node = all_bound(namespace, "bert", 2, SOON)["bert-1"]
    eventually(lambda: "Scheduled" in events(namespace, "bert-1"), SOON)
    done = events(namespace, "bert-1")["Scheduled"]
    assert (done["type"], done["action"]) == ("Normal", "Binding")
    assert done["note"] == f"Successfully assigned {namespace.name}/bert-1 to {node}"
    eventually(lambda: "GangScheduled" in events(namespace, "bert"), SOON)


def test_gangs_are_listed_with_why_they_wait(plane: ControlPlane, namespace, capsys):
    namespace.nodes(1, cpu=1)
    namespace.gang("bert", 2, cpu=1)
    eventually(lambda: scheduled(status(namespace, "bert")).get("reason") == "InsufficientResources", SOON)
    asked = ["get", "pg", "-n", namespace.name, "-o", "wide", "--kubeconfig", str(plane.kubeconfig())]
    assert run_command(asked) == 0
    titles, line = capsys.readouterr().out.splitlines()
    assert titles.startswith("NAME   PHASE     MIN   PLACED   RUNNING   QUEUE     AGE")
    assert "InsufficientResources: " in line


def test_status_of_queues_has_allocated_amounts_and_pending_gangs(plane: ControlPlane, namespace, capsys):
    api, name = namespace.api, namespace.name
    namespace.queue(name)
    namespace.queue(f"{name}-child", parent=name)
    namespace.nodes(1, cpu=4)
    group(namespace, "bert", 2, queue=f"{name}-child")
    namespace.pods(2, prefix="bert", gang="bert", cpu=1)
    group(namespace, "huge", 1, queue=f"{name}-child")
    namespace.pods(1, prefix="huge", gang="huge", cpu=64)
    for queue in (name, f"{name}-child"):

        def shows(queue: str = queue) -> bool:
            found = api.get(f"/apis/{API}/queues/{queue}").get("status", {})
            return bool(found.get("allocated", {}).get("cpu") == "2" and found.get("pending") == 1)

        eventually(shows, SOON)
    asked = ["queues", EXPLAIN, name, "-o", "json", "--kubeconfig", str(plane.kubeconfig())]
    # Other tests leave objects in the cluster that are set aside.
    assert run_command(asked) in (ExitCode.OK, ExitCode.SET_ASIDE)
    found = json.loads(capsys.readouterr().out)
    assert found["queue"]["allocated"] == {"cpu": 2000}
    assert [one["refusal"]["reason"] for one in found["waiting"]] == ["NoFeasibleNode"]


def test_no_event_is_lost_when_the_scheduler_ends(scheduler: Scheduler, namespace):
    namespace.nodes(4)
    group(namespace, "bert", 200)
    make(namespace, "bert", 200)
    all_bound(namespace, "bert", 200, SOON)
    assert scheduler.end() == 0
    found = namespace.api.get(namespace.path("events", group="events.k8s.io/v1"))["items"]
    bound = {one["regarding"]["name"] for one in found if one["reason"] == "Scheduled"}
    assert bound == {f"bert-{at}" for at in range(200)}
    assert status(namespace, "bert")["placed"] == 200
    scheduler.start()


def test_object_that_is_set_aside_has_an_event_with_its_problem(namespace):
    made = namespace.pod("huge", cpu="9000000000000000")
    event = eventually(lambda: events(namespace, "huge").get("SetAside"), SOON)
    assert event["type"] == "Warning"
    assert event["regarding"]["uid"] == made["metadata"]["uid"]
    assert event["note"].startswith("batchsched ignores this object until it is corrected: ")
    assert "cpu" in event["note"]
