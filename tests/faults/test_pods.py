"""Pods that users, admission, kubelets and the namespace change while their gang is being bound."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.controlplane.background import repeating
from tests.controlplane.fixtures import Namespace, eventually
from tests.controlplane.plane import ApiFault
from tests.controlplane.proxy import delayed
from tests.e2e.owners import job
from tests.e2e.running import all_bound, bound, group, never, pods
from tests.faults.policies import MESSAGE, policy_denies
from tests.faults.witness import Witness

BINDING = "/binding$"
CPUS = 8

pytestmark = pytest.mark.slow


@pytest.fixture
def witness(plane) -> Iterator[Witness]:
    with Witness(plane.admin, CPUS).watching() as watching:
        yield watching


# A namespace that terminates


def test_other_namespaces_are_served_while_a_partially_bound_gang_terminates_with_its_namespace(
    plane, scheduler, namespace, witness
):
    """The API server refuses bindings and evictions there, so the gang is neither completed nor rolled back."""
    namespace.nodes(2, cpu=CPUS)
    doomed = Namespace(plane.admin, f"{namespace.name}-doomed")
    plane.admin.create("/api/v1/namespaces", {"metadata": {"name": doomed.name}})
    scheduler.proxy.on(delayed(1.0), path=BINDING, skip=3, count=9)
    group(doomed, "bert", 12, scheduleTimeoutSeconds=2)
    doomed.pods(12, prefix="bert", gang="bert", cpu=1)
    eventually(lambda: bound(doomed))
    plane.admin.delete(f"/api/v1/namespaces/{doomed.name}")
    eventually(
        lambda: plane.admin.get(f"/api/v1/namespaces/{doomed.name}")["status"]["phase"] == "Terminating"
    )

    namespace.gang("other", 4, cpu=1)
    all_bound(namespace, "other", 4, 10)
    since = len(scheduler.proxy.seen)
    time.sleep(4)  # longer than the timeout of the gang
    writes = Counter(
        exchange.path
        for exchange in scheduler.proxy.seen[since:]
        if exchange.method != "GET" and f"/{doomed.name}/pods/" in exchange.path
    )
    partially_bound = len(bound(doomed))
    doomed.api.delete(doomed.path("pods"))  # as the namespace controller does
    assert 0 < partially_bound < 12
    assert max(writes.values(), default=0) <= 2, "requests are repeated without a pause"
    namespace.gang("next", 12, cpu=1)
    all_bound(namespace, "next", 12, 10)


# A pod that is recreated


def test_gang_is_complete_after_pods_are_recreated_under_their_names_during_the_bindings(
    scheduler, namespace, witness
):
    namespace.nodes(1, cpu=CPUS)
    delay = scheduler.proxy.on(delayed(1.0), path=BINDING, count=6)
    namespace.gang("bert", 6, cpu=1)
    eventually(lambda: delay.hits == 6)
    for name in ("bert-0", "bert-1", "bert-2"):
        namespace.api.delete(namespace.path("pods", name))
        namespace.pod(name, gang="bert", cpu=1)
    uids = {name: pod["metadata"]["uid"] for name, pod in pods(namespace).items()}
    all_bound(namespace, "bert", 6, 20)
    assert {name: pod["metadata"]["uid"] for name, pod in pods(namespace).items()} == uids


# A pod that its kubelet rejects


def reject_pods_on(namespace: Namespace, node: str, rejected: list[str], limit: int) -> None:
    """Fail the pods of a node as a kubelet does that has less room than the API server knows.

    Only after kwok has started them. If kwok makes a failed pod run again, the pod fails again.
    """
    for name, pod in pods(namespace).items():
        is_started = pod["spec"].get("nodeName") == node and pod["status"].get("phase") == "Running"
        uid = pod["metadata"]["uid"]
        if not is_started or (len(rejected) >= limit and uid not in rejected):
            continue
        status = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}
        with suppress(ApiFault):  # another client changed the pod meanwhile
            namespace.api.merge(namespace.path("pods", f"{name}/status"), {"status": status})
        if uid not in rejected:
            rejected.append(uid)


def test_gang_of_a_job_is_complete_after_the_kubelet_rejects_its_first_pods(
    plane, scheduler, namespace, witness
):
    """The first pod is rejected before the others are bound; the Job controller creates each pod again."""
    namespace.nodes(1, cpu=CPUS)
    scheduler.proxy.on(delayed(1.0), path=BINDING, skip=1, count=3)
    rejected: list[str] = []
    plane.start_controller_manager("job-controller")
    try:
        with repeating(lambda: reject_pods_on(namespace, "node-0", rejected, 2), seconds=0.05):
            job(namespace, "train", 4, backoffLimit=6)
            eventually(
                lambda: running_indexes(namespace) == ["0", "1", "2", "3"] and len(bound(namespace)) == 6, 60
            )
    finally:
        plane.kill("kube-controller-manager")
    assert len(rejected) == 2


def running_indexes(namespace: Namespace) -> list[str]:
    """The completion indexes of the running pods of a Job."""
    return sorted(
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
        for pod in pods(namespace).values()
        if pod["status"].get("phase") == "Running"
    )


# A binding that admission denies


@contextmanager
def denied(namespace: Namespace, pod: str) -> Iterator[None]:
    """Deny the binding of a pod that does not exist yet."""
    namespace.pod(pod, spec={"schedulerName": "none"}, cpu=1)
    with policy_denies(namespace, "binding", pod):
        namespace.api.delete(namespace.path("pods", pod))
        yield


def test_gang_with_a_denied_binding_is_rolled_back_and_complete_once_it_is_allowed(
    scheduler, namespace, witness
):
    namespace.nodes(1, cpu=CPUS)
    with denied(namespace, "bert-2"):
        group(namespace, "bert", 4, scheduleTimeoutSeconds=2)
        namespace.pods(4, prefix="bert", gang="bert", cpu=1)
        eventually(lambda: len(bound(namespace, "bert")) == 3, 10)
        namespace.gang("other", 4, cpu=1)
        all_bound(namespace, "other", 4, 10)
        eventually(lambda: not bound(namespace, "bert"), 15)
        assert witness.gone[f"{namespace.name}/bert-2"] == 1, "a pod without a node is evicted"
    namespace.pods(3, prefix="replacement", gang="bert", cpu=1)
    all_bound(namespace, "bert", 4, 30)
    events = namespace.api.get(namespace.path("events", group="events.k8s.io/v1"))["items"]
    assert any(MESSAGE in event.get("note", "") for event in events if event["regarding"]["name"] == "bert-2")


# A pod that is resized


def resize(namespace: Namespace, pod: str, cpu: int) -> None:
    resources = {"requests": {"cpu": str(cpu)}}
    body = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    path = namespace.path("pods", f"{pod}/resize")
    namespace.api.call("PATCH", path, body, "application/strategic-merge-patch+json")


def report_allocated(namespace: Namespace, pod: str, cpu: int) -> None:
    """Report the resources that a container has, as its kubelet does."""
    state = {
        "name": "main",
        "image": "none",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "allocatedResources": {"cpu": str(cpu)},
        "resources": {"requests": {"cpu": str(cpu)}},
    }
    path = namespace.path("pods", f"{pod}/status")
    namespace.api.merge(path, {"status": {"containerStatuses": [state]}})


def test_gang_is_placed_by_the_resources_that_a_resized_pod_may_still_use(scheduler, namespace):
    namespace.nodes(1, cpu=4)
    namespace.pod("resized", cpu=1)
    eventually(lambda: bound(namespace))
    report_allocated(namespace, "resized", 1)
    resize(namespace, "resized", 3)
    time.sleep(0.5)
    namespace.gang("bert", 2, cpu=1)
    never(lambda: bound(namespace, "bert"))
    report_allocated(namespace, "resized", 3)
    resize(namespace, "resized", 1)
    never(lambda: bound(namespace, "bert"))  # its kubelet has not reduced it yet
    report_allocated(namespace, "resized", 1)
    all_bound(namespace, "bert", 2, 20)


def test_pending_pod_is_bound_once_it_is_resized_to_fit(scheduler, namespace):
    namespace.nodes(1, cpu=4)
    namespace.gang("bert", 2, cpu=3)
    never(lambda: bound(namespace, "bert"), 1)
    resize(namespace, "bert-1", 1)
    all_bound(namespace, "bert", 2, 20)
