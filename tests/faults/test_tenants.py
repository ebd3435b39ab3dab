"""Objects of one tenant, which the API server accepts: they neither stop the scheduler nor evict pods of others."""

from collections.abc import Callable
from typing import Any

import pytest

from batchsched.api.crd.base import API_VERSION
from tests.controlplane.fixtures import Namespace, eventually
from tests.e2e.owners import job, reference
from tests.e2e.running import all_bound, bound, group, never
from tests.faults.policies import policy_denies

CPUS = 4
GROUP = "scheduling.batchsched.dev"

pytestmark = pytest.mark.slow


def own(namespace: Namespace, name: str, owner: dict[str, Any]) -> None:
    """Make a Job the owner of another one, or of itself."""
    owners = {"metadata": {"ownerReferences": [reference(owner | {"apiVersion": "batch/v1", "kind": "Job"})]}}
    namespace.api.merge(namespace.path("jobs", name, group="batch/v1"), owners)


def job_that_owns_itself(namespace: Namespace) -> None:
    own(namespace, "selfie", job(namespace, "selfie", 2))


def jobs_that_own_each_other(namespace: Namespace) -> None:
    first, second = job(namespace, "first", 2), job(namespace, "second", 2)
    own(namespace, "first", second)
    own(namespace, "second", first)


def minimum_of_5000_digits(namespace: Namespace) -> None:
    job(namespace, "endless", 2)
    marks = {"metadata": {"annotations": {f"{GROUP}/min-member": "9" * 5000}}}
    namespace.api.merge(namespace.path("jobs", "endless", group="batch/v1"), marks)


def pods_with_more_cpus_than_64_bits_hold(namespace: Namespace) -> None:
    namespace.queue(namespace.name, limit={"cpu": "4"})
    for number in range(8):
        group(namespace, f"huge-{number}", 1, queue=namespace.name)
        namespace.pod(f"huge-{number}", gang=f"huge-{number}", cpu="9000000000000000")


@pytest.mark.parametrize(
    "attack",
    [
        job_that_owns_itself,
        jobs_that_own_each_other,
        minimum_of_5000_digits,
        pods_with_more_cpus_than_64_bits_hold,
    ],
)
def test_pods_are_bound_after_a_tenant_created_a_hostile_object(
    scheduler, namespace, attack: Callable[[Namespace], None]
):
    """The fixture checks that the scheduler did not end."""
    namespace.nodes(1, cpu=CPUS)
    attack(namespace)
    namespace.gang("next", 2, cpu=1)
    all_bound(namespace, "next", 2, 30)


def urgent_gang(namespace: Namespace, in_pods: bool) -> None:
    """A gang of the size of four nodes; its PodGroup names a PriorityClass, and its pods if stated."""
    name = f"{namespace.name}-urgent"
    namespace.priority_class(name, 1000)
    group(namespace, "urgent", 4, priorityClassName=name)
    spec = {"priorityClassName": name} if in_pods else {}
    namespace.pods(4, prefix="urgent", gang="urgent", cpu=CPUS, spec=spec)


def full(namespace: Namespace) -> set[str]:
    """Four nodes, each full with a pod without a priority."""
    namespace.nodes(4, cpu=CPUS)
    namespace.pods(4, prefix="low", cpu=CPUS)
    eventually(lambda: len(bound(namespace)) == 4, 20)
    return set(bound(namespace))


def conditions(namespace: Namespace, name: str) -> set[str]:
    found = namespace.api.get(namespace.path("podgroups", name, group=API_VERSION))
    return {one["type"] for one in found.get("status", {}).get("conditions", ()) if one["status"] == "True"}


def test_class_of_a_pod_group_evicts_no_pod_if_the_pods_do_not_have_it(scheduler, namespace):
    """Admission restricts the classes of pods, by a ResourceQuota for example, but not that of a PodGroup."""
    low = full(namespace)
    urgent_gang(namespace, in_pods=False)
    eventually(lambda: "PriorityCapped" in conditions(namespace, "urgent"), 20)
    never(lambda: set(bound(namespace)) != low)


def test_no_pod_is_evicted_if_admission_denies_one_eviction_of_the_plan(scheduler, namespace):
    low = full(namespace)
    with policy_denies(namespace, "eviction", "low-2"):
        since = len(scheduler.proxy.seen)
        urgent_gang(namespace, in_pods=True)
        eventually(lambda: any("/low-2/eviction" in one.path for one in scheduler.proxy.seen[since:]), 20)
        never(lambda: set(bound(namespace)) != low, 5)
        namespace.api.delete(namespace.path("pods", "low-0"))
        namespace.pod("next", cpu=CPUS)
        eventually(lambda: "next" in bound(namespace), 20)
