"""The control plane of the tests is a real one."""

import pytest

from tests.controlplane.build import VERSION
from tests.controlplane.fixtures import eventually
from tests.controlplane.plane import Api, ApiFault


def test_the_api_server_is_the_one_that_is_pinned(plane):
    assert plane.admin.get("/version")["gitVersion"] == VERSION


def test_kwok_makes_a_node_ready_and_runs_and_ends_a_pod_that_is_bound(plane, namespace):
    namespace.nodes(1)
    namespace.pod("lone")
    assert namespace.get("lone")["status"]["phase"] == "Pending"
    namespace.bind("lone", "node-0")
    eventually(lambda: namespace.get("lone")["status"]["phase"] == "Running")
    conditions = plane.admin.get("/api/v1/nodes/node-0")["status"]["conditions"]
    assert [(one["type"], one["status"]) for one in conditions] == [("Ready", "True")]
    plane.admin.delete(namespace.path("pods", "lone"), grace=30)
    with pytest.raises(ApiFault, match="404"):
        eventually(lambda: not namespace.get("lone"))


def test_a_service_account_may_do_what_its_role_says_and_nothing_else(plane, namespace):
    api, rbac = plane.admin, "rbac.authorization.k8s.io/v1"
    api.create(namespace.path("serviceaccounts"), {"metadata": {"name": "reader"}})
    reader = Api(plane.server, plane.certificate, plane.token_of(namespace.name, "reader"))
    with pytest.raises(ApiFault, match="403"):
        reader.get(namespace.path("pods"))
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    api.create(namespace.path("roles", group=rbac), {"metadata": {"name": "reader"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace.name}],
    }
    api.create(namespace.path("rolebindings", group=rbac), binding)
    assert eventually(lambda: listed(reader, namespace)) == "PodList"
    with pytest.raises(ApiFault, match="403"):
        reader.get(namespace.path("configmaps"))


def listed(reader, namespace):
    """What a list is; "" while the authoriser has not heard of the role."""
    try:
        return reader.get(namespace.path("pods"))["kind"]
    except ApiFault:
        return ""


def test_a_control_plane_comes_back_with_what_it_had(own_plane):
    own_plane.admin.create("/api/v1/namespaces", {"metadata": {"name": "kept"}})
    own_plane.kill("kube-apiserver")
    own_plane.start_apiserver()
    assert own_plane.admin.get("/api/v1/namespaces/kept")["metadata"]["name"] == "kept"
