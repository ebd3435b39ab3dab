"""`batchsched install`: what it prints is what it applies, and applying it again changes nothing."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from batchsched.service import installation
from tests.controlplane.plane import ControlPlane

PLACES = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/scheduling/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/scheduling/configmaps",
    "Service": "/api/v1/namespaces/scheduling/services",
    "Deployment": "/apis/apps/v1/namespaces/scheduling/deployments",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/scheduling/poddisruptionbudgets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/scheduling/networkpolicies",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}


def printed(command: Any, *arguments: object) -> list[dict[str, Any]]:
    result = command("install", "--dry-run", *arguments)
    assert (result.code, result.err) == (0, "")
    return list(yaml.safe_load_all(result.out))


def one(manifests: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (manifest for manifest in manifests if manifest["kind"] == kind)
    return found


def test_definitions_and_the_namespace_are_applied_before_the_objects_that_need_them(command):
    kinds = [manifest["kind"] for manifest in printed(command)]
    assert kinds[:4] == ["CustomResourceDefinition"] * 3 + ["Namespace"]
    assert set(kinds) == PLACES.keys()


def test_every_object_is_in_the_requested_namespace(command):
    for manifest in printed(command, "--namespace", "scheduling"):
        metadata = manifest["metadata"]
        if manifest["kind"] == "Namespace":
            assert metadata["name"] == "scheduling"
        elif metadata["name"] == "batchsched-scheduler-names":  # the same for all deployments
            assert metadata["namespace"] == "kube-public"
        elif manifest["kind"] not in ("CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"):
            assert metadata["namespace"] == "scheduling"
        assert {subject["namespace"] for subject in manifest.get("subjects", ())} <= {"scheduling"}


@pytest.mark.parametrize("name", ["Bad Name", "", "-a", "a" * 64], ids=["blank", "empty", "dash", "long"])
def test_an_invalid_namespace_is_refused_before_any_object_is_applied(command, name):
    result = command("install", f"--namespace={name}")
    assert result.code == 2
    assert "can name no namespace" in result.complaint


def test_image_and_replicas_are_the_requested_ones(command):
    spec = one(printed(command, "--image", "here/batchsched:2", "--replicas", 3), "Deployment")["spec"]
    assert spec["replicas"] == 3
    assert [each["image"] for each in spec["template"]["spec"]["containers"]] == ["here/batchsched:2"]


def test_copy_of_the_files_in_a_wheel_is_found_first(command, tmp_path, monkeypatch):
    base = tmp_path / "installed" / "deploy" / "kustomize" / "base"
    base.mkdir(parents=True)
    (tmp_path / "installed" / "crds").mkdir()
    (base / "kustomization.yaml").write_text("resources: [account.yaml]\n")
    (base / "account.yaml").write_text(
        "{apiVersion: v1, kind: ServiceAccount, metadata: {name: of-the-wheel}}\n"
    )
    monkeypatch.setattr(installation, "_PACKAGE", tmp_path)
    assert [manifest["metadata"]["name"] for manifest in printed(command)] == ["of-the-wheel"]


def test_installation_without_its_files_says_so(command, tmp_path, monkeypatch):
    monkeypatch.setattr(installation, "_PACKAGE", tmp_path / "lib")
    result = command("install", "--dry-run")
    assert result.code == 1
    assert "came without crds/; install it from its wheel or its repository" in result.err


@pytest.fixture
def kubeconfig(own_plane: ControlPlane) -> Path:
    return own_plane.kubeconfig()


def versions(plane: ControlPlane, manifests: list[dict[str, Any]]) -> dict[str, str]:
    """Return what changes when an object does; the API server itself writes the status of new kinds."""
    found = {}
    for manifest in manifests:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        place = PLACES[kind].format(namespace=manifest["metadata"].get("namespace"))
        metadata = plane.admin.get(f"{place}/{name}")["metadata"]
        changes = "generation" if kind == "CustomResourceDefinition" else "resourceVersion"
        found[f"{kind}/{name}"] = str(metadata[changes])
    return found


def test_api_server_takes_it_and_a_second_time_changes_nothing(command, own_plane, kubeconfig):
    arguments = ("--namespace", "scheduling")
    manifests = printed(command, *arguments)
    first = command("install", "--kubeconfig", kubeconfig, *arguments)
    assert (first.code, first.err) == (0, "")
    assert len(first.out.splitlines()) == len(manifests)
    before = versions(own_plane, manifests)
    assert command("install", "--kubeconfig", kubeconfig, *arguments).code == 0
    assert versions(own_plane, manifests) == before


def test_installing_again_changes_what_differs_and_keeps_fields_of_other_managers(
    command, own_plane, kubeconfig
):
    arguments = ("--kubeconfig", kubeconfig, "--namespace", "scheduling")
    assert command("install", *arguments).code == 0
    path = f"{PLACES['Deployment']}/batchsched"
    own_plane.admin.merge(path, {"metadata": {"annotations": {"owner": "another manager"}}})
    assert command("install", *arguments, "--image", "here/batchsched:2").code == 0
    found = own_plane.admin.get(path)
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "here/batchsched:2"
    assert found["metadata"]["annotations"]["owner"] == "another manager"


def test_install_without_permission_names_the_object_and_the_status(command, own_plane):
    own_plane.admin.create(
        "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "unprivileged"}}
    )
    token = own_plane.token_of("default", "unprivileged")
    result = command("install", "--kubeconfig", own_plane.kubeconfig(token))
    assert result.code == 1
    assert (
        "customresourcedefinition/podgroups.scheduling.batchsched.dev could not be applied: 403 Forbidden"
        in result.err
    )
