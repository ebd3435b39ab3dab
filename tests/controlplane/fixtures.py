"""What tests get of a control plane: one for all tests of a process, a namespace, a bad network."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from batchsched.api.crd.base import API_VERSION
from batchsched.config.kubernetes_release import KubernetesVersion
from tests.controlplane import build
from tests.controlplane.objects import Manifest, custom, node, pod, pod_group
from tests.controlplane.plane import Api, ApiFault, ControlPlane
from tests.controlplane.proxy import Proxy

QUEUES: Final = f"/apis/{API_VERSION}/queues"
TOPOLOGIES: Final = f"/apis/{API_VERSION}/topologies"
PRIORITY_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
_NEEDED: Final = ("etcd", "kube-apiserver", "kwok")
WORKLOAD_GATES: Final = (
    "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true,WorkloadWithJob=true,"
    "PodGroupPreemptionPolicy=true,DRAWorkloadResourceClaims=true"
)
"""Feature gates of the Workload API, which are off by default in Kubernetes 1.37."""
WORKLOAD_API: Final = (
    f"--feature-gates={WORKLOAD_GATES}",
    "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true",
)
"""Arguments of kube-apiserver with which it serves the Workload API."""
_NUMBERS: Final = itertools.count(1)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with kwok and our kinds for all tests of this process: break nothing that others may need."""
    with start(tmp_path_factory.mktemp("plane")) as running:
        running.start_kwok()
        running.install_definitions()
        yield running


@pytest.fixture
def own_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane without kwok that a test may break."""
    with start(tmp_path / "plane") as running:
        yield running


@pytest.fixture
def namespace(plane: ControlPlane) -> Iterator["Namespace"]:
    """A namespace of the test's own; its Jobs and pods, and all nodes, queues and topologies, are gone afterwards."""
    name = f"test-{next(_NUMBERS)}"
    plane.admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
    yield Namespace(plane.admin, name)
    at_once = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    # Without their Jobs first, a later test that starts the Job controller would get pods of this one.
    background = at_once | {"propagationPolicy": "Background"}
    plane.admin.call("DELETE", f"/apis/batch/v1/namespaces/{name}/jobs", background)
    plane.admin.call("DELETE", f"/api/v1/namespaces/{name}/pods", at_once)
    for left in plane.admin.get(f"/api/v1/namespaces/{name}/pods")["items"]:
        if left["metadata"].get("finalizers"):  # of a Job controller that may have been stopped
            unfinalized = {"metadata": {"finalizers": None}}
            with contextlib.suppress(ApiFault):
                plane.admin.merge(f"/api/v1/namespaces/{name}/pods/{left['metadata']['name']}", unfinalized)
    plane.admin.call("DELETE", "/api/v1/nodes", at_once)
    for path in (QUEUES, TOPOLOGIES):  # what one test entitles to would be missing in the next
        with contextlib.suppress(ApiFault):  # where our CRDs are not installed
            plane.admin.call("DELETE", path, at_once)


@pytest.fixture
def proxy(plane: ControlPlane) -> Iterator[Proxy]:
    """A network between a client and `plane` with configurable faults."""
    with Proxy(plane.server, plane.certificate) as between:
        yield between


def start(home: Path, *arguments: str, version: KubernetesVersion = build.CURRENT) -> ControlPlane:
    """Return a control plane to start, its API server with more arguments.

    Without its programs the test is skipped, or fails where they are required.
    """
    missing = [name for name in _NEEDED if build.find(name) is None]
    if build.find("kube-apiserver", version) is None:
        missing.append(f"kube-apiserver {version}")
    if missing:
        reason = (
            f"no control plane ({', '.join(missing)}): run `make controlplane`, or set KUBEBUILDER_ASSETS"
        )
        if build.required():
            pytest.fail(reason)
        pytest.skip(reason)
    return ControlPlane(home, arguments, version)


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace, and an administrator in it."""

    api: Api
    name: str

    def path(self, plural: str, name: str = "", group: str = "") -> str:
        """The path of a collection here, or of an object of it; `group` is `apps/v1` and the like, "" the core."""
        root = f"/apis/{group}" if group else "/api/v1"
        return f"{root}/namespaces/{self.name}/{plural}" + (f"/{name}" if name else "")

    def nodes(self, count: int, prefix: str = "node", **allocatable: Any) -> list[Manifest]:
        """Make equal nodes."""
        wanted = (node(f"{prefix}-{number}", **allocatable) for number in range(count))
        return [self.api.create("/api/v1/nodes", one) for one in wanted]

    def pod(self, name: str, **more: Any) -> Manifest:
        """Make a pod; see `objects.pod`."""
        return self.api.create(self.path("pods"), pod(name, **more))

    def pods(self, count: int, prefix: str = "pod", **more: Any) -> list[Manifest]:
        """Make equal pods."""
        return [self.pod(f"{prefix}-{number}", **more) for number in range(count)]

    def gang(self, name: str, pods: int, min_member: int | None = None, **more: Any) -> list[Manifest]:
        """Make a PodGroup and its pods; its CRD has to be there."""
        group = pod_group(name, pods if min_member is None else min_member)
        self.api.create(self.path("podgroups", group=group["apiVersion"]), group)
        return self.pods(pods, prefix=name, gang=name, **more)

    def queue(self, name: str, **spec: Any) -> Manifest:
        """Make a Queue."""
        return self.api.create(QUEUES, custom("Queue", name, **spec))

    def topology(self, name: str, **levels: str) -> Manifest:
        """Make a Topology of levels with their node labels."""
        stated = [{"name": level, "nodeLabel": label} for level, label in levels.items()]
        return self.api.create(TOPOLOGIES, custom("Topology", name, levels=stated))

    def priority_class(self, name: str, value: int) -> Manifest:
        """Make a PriorityClass."""
        return self.api.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})

    def get(self, name: str) -> Manifest:
        """Read a pod."""
        return self.api.get(self.path("pods", name))

    def bind(self, name: str, to: str) -> None:
        """Bind a pod as a scheduler would."""
        target = {"apiVersion": "v1", "kind": "Node", "name": to}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self.api.create(self.path("pods", f"{name}/binding"), binding)


def eventually(true: Callable[[], Any], within: float = 60.0) -> Any:
    """Wait until something is true, and return it.

    Raises:
      AssertionError: it is not, after `within` seconds.
    """
    ends = time.monotonic() + within
    while not (found := true()):
        assert time.monotonic() < ends, "it did not come true in time"
        time.sleep(0.02)
    return found
