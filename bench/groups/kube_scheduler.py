"""The real kube-scheduler on the objects of a case: a control plane, a cluster of nodes, and one gang at a time.

Its groups are those of Kubernetes 1.37, with all feature gates of the Workload API. kube-scheduler is stopped while a
case is created, so that it sees the whole gang at once. It tries a gang again only when the cluster changes. Nothing
changes here, so the first answer counts.
"""

import contextlib
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Self

import psutil
import urllib3

from bench.groups import objects
from bench.groups.cases import Case
from bench.groups.check import Placement
from tests.controlplane.fixtures import WORKLOAD_API, WORKLOAD_GATES
from tests.controlplane.plane import Api, ControlPlane

NAME: Final = "default-scheduler"
_ANSWERS_WITHIN: Final = 60.0
_SETTLED_AFTER: Final = 1.5
"""Seconds without a further binding after which a placement is complete, and after which a refusal is not revised."""
_NAMESPACED: Final = f"namespaces/{objects.NAMESPACE}"
_CORE: Final = f"/api/v1/{_NAMESPACED}"
_DEVICES: Final = "/apis/resource.k8s.io/v1"
_GROUPS: Final = {
    "PodGroup": f"/apis/{objects.ALPHA}/{_NAMESPACED}/podgroups",
    "CompositePodGroup": f"/apis/{objects.ALPHA}/{_NAMESPACED}/compositepodgroups",
}


class KubeScheduler:
    """A control plane with kube-scheduler 1.37; use it as a context manager."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._cluster: tuple[int, bool] = (0, False)
        """Number of nodes, and whether their GPUs are devices of ResourceSlices."""

    def __enter__(self) -> Self:
        home = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._plane = self._stack.enter_context(ControlPlane(home / "plane", WORKLOAD_API))
        self._pool = self._stack.enter_context(ThreadPoolExecutor(6))
        self._api: Api = self._plane.admin
        self._api.create("/api/v1/namespaces", {"metadata": {"name": objects.NAMESPACE}})
        for template in objects.claim_templates():
            self._api.create(f"{_DEVICES}/{_NAMESPACED}/resourceclaimtemplates", template)
        self._api.create(f"{_DEVICES}/deviceclasses", objects.device_class())
        self._plane.start_controller_manager(
            "resourceclaim-controller", "podgroup-protection-controller", gates=WORKLOAD_GATES
        )
        self._plane.start_scheduler(gates=WORKLOAD_GATES)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def place(self, case: Case) -> tuple[Placement, float]:
        """Return where kube-scheduler places the pods of the gang, and its CPU time in seconds.

        Raises:
          TimeoutError: it neither places nor refuses the gang.
          ValueError: the gang has slices.
        """
        process = psutil.Process(self._plane.pid("kube-scheduler"))
        with self._plane.paused("kube-scheduler"):
            self._prepare_nodes(case)
            self._create_running(case)
            for group in objects.upstream_groups(case):
                self._api.create(_GROUPS[group["kind"]], {**group, "apiVersion": objects.ALPHA})
            self._create(f"{_CORE}/pods", objects.gang_pods(case, NAME, upstream=True))
            self._await_claims(case)
        before = _cpu_seconds(process)
        placement = self._await_answer(case)
        seconds = _cpu_seconds(process) - before
        self._delete_all(case)
        return placement, seconds

    # ------------------------------------------------------------------------------------ creating

    def _create(self, path: str, manifests: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        return list(
            self._pool.map(lambda manifest: self._api.create(path, _without_uid(manifest)), manifests)
        )

    def _prepare_nodes(self, case: Case) -> None:
        cluster = len(case.free), case.has_claims
        if cluster == self._cluster:
            return
        self._delete_collection("/api/v1/nodes")
        self._delete_collection(f"{_DEVICES}/resourceslices")
        self._create("/api/v1/nodes", objects.nodes(case))
        self._create(f"{_DEVICES}/resourceslices", objects.resource_slices(case))
        self._cluster = cluster

    def _create_running(self, case: Case) -> None:
        """Create the running pods, then their claims, which name the UIDs of the pods."""
        created = self._create(f"{_CORE}/pods", objects.running_pods(case, named_claims=True))
        uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in created}
        claims = objects.running_claims(case)
        path = f"{_DEVICES}/{_NAMESPACED}/resourceclaims"
        self._create(path, [_without_owner(claim) for claim in claims])
        for claim in claims:
            (consumer,) = claim["status"]["reservedFor"]
            status = {**claim["status"], "reservedFor": [{**consumer, "uid": uids[consumer["name"]]}]}
            self._api.merge(f"{path}/{claim['metadata']['name']}/status", {"status": status})

    def _await_claims(self, case: Case) -> None:
        """Wait until a claim exists for each pod that needs one."""
        missing = {claim["metadata"]["ownerReferences"][0]["name"] for claim in objects.gang_claims(case)}
        for _ in _polls("claims"):
            missing -= {
                pod["metadata"]["name"]
                for pod in self._pods()
                if pod.get("status", {}).get("resourceClaimStatuses")
            }
            if not missing:
                return

    # ------------------------------------------------------------------------------------ answers

    def _pods(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self._api.get(f"{_CORE}/pods?resourceVersion=0")["items"]
        return items

    def _bound(self, case: Case) -> dict[str, int]:
        names = {name for group in case.gang.iterate() for name, _, _ in group.iterate_pods()}
        return {
            pod["metadata"]["name"]: int(pod["spec"]["nodeName"][1:])
            for pod in self._pods()
            if pod["metadata"]["name"] in names and pod["spec"].get("nodeName")
        }

    def _await_answer(self, case: Case) -> Placement:
        seen: tuple[bool, int] = (False, 0)
        since = time.monotonic()
        for _ in _polls("an answer"):
            bound = self._bound(case)
            answered = self._is_answered()
            if (answered, len(bound)) != seen:
                seen, since = (answered, len(bound)), time.monotonic()
            if answered and time.monotonic() - since > _SETTLED_AFTER:
                break
        return Placement(bound, self._devices(bound) if case.has_claims else {})

    def _is_answered(self) -> bool:
        """Return whether a PodGroup has the condition that it was scheduled, or that it could not be."""
        return any(
            condition["type"] == "PodGroupInitiallyScheduled"
            for group in self._api.get(_GROUPS["PodGroup"])["items"]
            for condition in group.get("status", {}).get("conditions", ())
        )

    def _devices(self, bound: dict[str, int]) -> dict[str, tuple[int, ...]]:
        claims = self._api.get(f"{_DEVICES}/{_NAMESPACED}/resourceclaims")["items"]
        return {
            claim["metadata"]["ownerReferences"][0]["name"]: tuple(
                objects.device_number(result["device"])
                for result in claim["status"]["allocation"]["devices"]["results"]
            )
            for claim in claims
            if claim.get("status", {}).get("allocation")
            and claim["metadata"].get("ownerReferences", [{"name": ""}])[0]["name"] in bound
        }

    # ------------------------------------------------------------------------------------ deleting

    def _delete_collection(self, path: str) -> None:
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        for _ in _polls(f"answer to the deletion of {path}"):
            # On a busy machine, the API server may close the connection before it answers.
            with contextlib.suppress(urllib3.exceptions.ProtocolError):
                self._api.call("DELETE", path, options)
                return

    def _delete_all(self, case: Case) -> None:
        paths = [f"{_CORE}/pods", *_GROUPS.values(), f"{_DEVICES}/{_NAMESPACED}/resourceclaims"]
        for path in paths:
            self._delete_collection(path)
        for path in paths:
            for _ in _polls(f"the deletion of {path}"):
                if not self._api.get(path)["items"]:
                    break


def _polls(what: str) -> Iterator[None]:
    """Yield every 0.1 s.

    Raises:
      TimeoutError: the caller does not stop within a minute.
    """
    ends = time.monotonic() + _ANSWERS_WITHIN
    while time.monotonic() < ends:
        yield
        time.sleep(0.1)
    raise TimeoutError(f"no {what} within {_ANSWERS_WITHIN:.0f} s")


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _without_uid(manifest: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "uid"}
    return {**manifest, "metadata": metadata}


def _without_owner(claim: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in claim["metadata"].items() if key != "ownerReferences"}
    return {**claim, "metadata": metadata}
