"""The rights of `deploy/` are what batchsched uses: all of it, and nothing else.

One scheduler is made to do everything that it can do; the API server records its requests. Each right that
a role gives was used then. Without one of them a call of this test is forbidden, and the test fails. The admission
policies of `deploy/` are installed, and refuse none of it.
"""

import itertools
import time
from collections.abc import Iterator

import pytest

from batchsched.api.external.conversion import EXTERNAL_KINDS
from batchsched.api.external.hyper_node import HYPER_NODE_KIND
from batchsched.api.external.topology import EXTERNAL_TOPOLOGY_KINDS
from batchsched.api.snapshot import KIND_BY_GROUP_AND_NAME
from batchsched.podgrouper.rules import OWNERS
from tests.controlplane import audit, devices
from tests.controlplane.audit import Right
from tests.controlplane.fixtures import WORKLOAD_API, Namespace, eventually, start
from tests.controlplane.installed import install_policies, manifests
from tests.controlplane.plane import ControlPlane
from tests.controlplane.process import LEASE
from tests.e2e.owners import install, job, members
from tests.e2e.running import all_bound, bound, condition, group, pods
from tests.e2e.serving import Served, serving

OURS = "scheduling.batchsched.dev/v1alpha1"
LABEL = "scheduling.batchsched.dev/pod-group"
TOPOLOGIES = (
    *EXTERNAL_TOPOLOGY_KINDS,
    HYPER_NODE_KIND,
    KIND_BY_GROUP_AND_NAME["topology.node.k8s.io", "NodeResourceTopology"],
)
SYNTHETIC = Right("resource.k8s.io", "resourceclaims/binding", "patch")
"""The API server asks for this right in a write of resourceclaims/status, and the audit log does not show it."""
BUILT_IN = {"batch", "apps", "scheduling.k8s.io"}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with every kind that batchsched knows."""
    with start(tmp_path_factory.mktemp("rights"), *WORKLOAD_API) as plane:
        plane.start_kwok()
        plane.install_definitions()
        install_policies(plane)
        kinds = {
            (one.group, one.name): one.api_version for one in (*OWNERS[::-1], *EXTERNAL_KINDS, *TOPOLOGIES)
        }
        for (where, kind), api_version in kinds.items():
            if where not in BUILT_IN:
                install(plane.admin, where, api_version.partition("/")[2], kind)
        yield plane


def test_every_right_is_used_and_no_other_is_needed(everything, tmp_path):
    everything.admin.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    namespace = Namespace(everything.admin, "team")
    served = Served(everything, "rights", tmp_path / "batchsched.yaml", ("--lease", LEASE))
    with serving(served):
        assert served.metrics
        namespace.nodes(2, cpu=4)
        bind_a_gang_of_a_queue(namespace)
        be_refused_twice(namespace)
        roll_back(namespace)
        use_volumes(namespace)
        allocate_devices(namespace)
        follow_an_owner(namespace)
        bind_a_gang_of_kubernetes_itself(namespace)
        assert served.scheduler.end() == 0
        assert "denied request" not in served.scheduler.said
    used, given = audit.used(everything.home), granted()
    assert given - used == {SYNTHETIC}, "unused rights"
    assert used - given == set(), "rights from other roles"


def granted() -> set[Right]:
    """What the roles of batchsched give."""
    roles = [
        one
        for one in manifests()
        if one["kind"] in ("Role", "ClusterRole") and one["metadata"]["name"] == "batchsched"
    ]
    return {
        Right(*right)
        for role in roles
        for rule in role["rules"]
        for right in itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }


def bind_a_gang_of_a_queue(namespace: Namespace) -> None:
    namespace.queue("research")
    group(namespace, "bert", 2, queue="research")
    namespace.pods(2, prefix="bert", gang="bert")
    all_bound(namespace, "bert", 2, 60)


def be_refused_twice(namespace: Namespace) -> None:
    """An Event that repeats is patched, when its series ends or when we leave."""
    namespace.pod("large", cpu=64)
    refused = {"reason": "Unschedulable", "status": "False"}
    eventually(lambda: refused.items() <= condition(namespace, "large").items(), 60)
    for cpu in ("5", "6"):
        namespace.api.merge("/api/v1/nodes/node-0/status", {"status": {"allocatable": {"cpu": cpu}}})
        time.sleep(2.5)  # as long as it backs off


def roll_back(namespace: Namespace) -> None:
    """A gang that cannot be completed is given up, and its pods are evicted."""
    group(namespace, "half", 2, scheduleTimeoutSeconds=1)
    namespace.pods(2, prefix="half", gang="half", spec={"nodeSelector": {"nowhere": "yes"}})
    namespace.bind("half-0", "node-1")
    eventually(lambda: "half-0" not in pods(namespace), 60)


def use_volumes(namespace: Namespace) -> None:
    """A claim gets a volume that is there, another one is provisioned; we are the controllers of both."""
    for name, provisioner in (("local", "kubernetes.io/no-provisioner"), ("dynamic", "example.com/csi")):
        namespace.api.create(
            "/apis/storage.k8s.io/v1/storageclasses",
            {
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer",
            },
        )
        claim = {
            "metadata": {"name": name},
            "spec": {
                "storageClassName": name,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        namespace.api.create(namespace.path("persistentvolumeclaims"), claim)
    volume(namespace, "local")
    for name in ("local", "dynamic"):
        mounted = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
        namespace.pod(f"with-{name}", spec={"volumes": [mounted]}, cpu="10m")
    eventually(lambda: "claimRef" in namespace.api.get("/api/v1/persistentvolumes/local")["spec"], 60)
    bind_claim(namespace, "local")
    selected = "volume.kubernetes.io/selected-node"
    path = namespace.path("persistentvolumeclaims", "dynamic")
    eventually(lambda: selected in namespace.api.get(path)["metadata"].get("annotations", {}), 60)
    volume(namespace, "dynamic", claimRef={"namespace": namespace.name, "name": "dynamic"})
    bind_claim(namespace, "dynamic")
    eventually(lambda: {"with-local", "with-dynamic"} <= bound(namespace).keys(), 60)


def volume(namespace: Namespace, name: str, **spec: object) -> None:
    """Make a volume that is on every node."""
    somewhere = {"key": "kubernetes.io/hostname", "operator": "Exists"}
    whole = {
        "storageClassName": name,
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [somewhere]}]}},
        **spec,
    }
    namespace.api.create("/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": whole})
    namespace.api.merge(f"/api/v1/persistentvolumes/{name}/status", {"status": {"phase": "Available"}})


def bind_claim(namespace: Namespace, name: str) -> None:
    """Say that a claim has its volume, as the controller of volumes would."""
    path = namespace.path("persistentvolumeclaims", name)
    namespace.api.merge(path, {"spec": {"volumeName": name}})
    namespace.api.merge(f"{path}/status", {"status": {"phase": "Bound"}})


def allocate_devices(namespace: Namespace) -> None:
    """A claim gets devices, and is reserved for its pod; the claim that cannot be reserved is read again."""
    devices.device_class(namespace.api, extendedResourceName="example.com/gpu")
    devices.publish(namespace.api, "node-0", 1)
    devices.claim(namespace, "shared")
    namespace.pod("with-devices", spec=devices.sharing("shared"), cpu="10m")
    eventually(lambda: "with-devices" in bound(namespace), 60)
    namespace.pod("sharing", spec=devices.sharing("shared"), cpu="10m")
    eventually(lambda: "sharing" in bound(namespace), 60)
    uid = namespace.pod("extended", cpu="10m", **{"example.com/gpu": 1})["metadata"]["uid"]
    devices.build_extended_resource_claim(
        namespace, f"extended-extended-resources-{uid[:8]}", "extended", uid
    )
    devices.publish(namespace.api, "node-1", 1)
    eventually(lambda: "extended" in bound(namespace), 60)


def follow_an_owner(namespace: Namespace) -> None:
    """A Job's PodGroup is made, follows the Job, and goes when the Job is suspended."""
    members(namespace, job(namespace, "train", 2), [0])
    eventually(lambda: sizes(namespace) == [2], 60)
    eventually(lambda: LABEL in pods(namespace)["train-0"]["metadata"].get("labels", {}), 60)
    path = namespace.path("jobs", "train", group="batch/v1")
    namespace.api.merge(path, {"spec": {"parallelism": 3, "completions": 3}})
    eventually(lambda: sizes(namespace) == [3], 60)
    namespace.api.merge(path, {"spec": {"suspend": True}})
    eventually(lambda: not sizes(namespace), 60)


def bind_a_gang_of_kubernetes_itself(namespace: Namespace) -> None:
    """Its PodGroup says that it was scheduled."""
    path = namespace.path("podgroups", group="scheduling.k8s.io/v1beta1")
    spec = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    namespace.api.create(path, {"metadata": {"name": "upstream"}, "spec": spec})
    trees = namespace.path("compositepodgroups", group="scheduling.k8s.io/v1alpha3")
    reference = {"workloadName": "w", "templateName": "t"}
    root = {"schedulingPolicy": {"gang": {"minGroupCount": 1}}, "workloadRef": reference}
    namespace.api.create(trees, {"metadata": {"name": "tree"}, "spec": root})
    leaf = {**spec, "workloadRef": reference, "parentCompositePodGroupName": "tree"}
    namespace.api.create(path, {"metadata": {"name": "leaf"}, "spec": leaf})
    namespace.pod("leaf-0", spec={"schedulingGroup": {"podGroupName": "leaf"}}, cpu="10m")
    eventually(lambda: namespace.api.get(f"{trees}/tree").get("status", {}).get("conditions"), 60)
    namespace.pod("upstream-0", spec={"schedulingGroup": {"podGroupName": "upstream"}}, cpu="10m")
    eventually(lambda: namespace.api.get(f"{path}/upstream").get("status", {}).get("conditions"), 60)


def sizes(namespace: Namespace) -> list[int]:
    """The minMember of each PodGroup that the pod grouper made."""
    made = namespace.api.get(namespace.path("podgroups", group=OURS))["items"]
    return [one["spec"]["minMember"] for one in made if one["metadata"].get("ownerReferences")]
