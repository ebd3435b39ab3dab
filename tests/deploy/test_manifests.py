"""What `deploy/` installs: the kustomize base and the Helm chart say the same, and the API server takes both."""

import itertools
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane.build import program
from tests.controlplane.installed import NAMESPACE, manifests, service_account
from tests.controlplane.plane import ControlPlane

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "batchsched"
OURS = "scheduling.batchsched.dev"
Manifest = dict[str, Any]


def charted(*arguments: str, namespace: str = NAMESPACE) -> list[Manifest]:
    command: list[str | Path] = [
        program("helm"),
        "template",
        "batchsched",
        str(CHART),
        "--namespace",
        namespace,
        "--include-crds",
    ]
    said = subprocess.run(
        [*command, "--kube-version", "1.36.3", *arguments], capture_output=True, text=True, check=True
    )
    return [one for one in yaml.safe_load_all(said.stdout) if one]


def by_name(found: list[Manifest]) -> dict[tuple[str, str], Manifest]:
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def said(manifest: Manifest) -> Manifest:
    """The content of a manifest, without metadata, which differs between the tools; embedded files are parsed."""
    plain = {key: value for key, value in manifest.items() if key != "metadata"}
    if manifest["kind"] == "ConfigMap":
        plain["data"] = {name: yaml.safe_load(text) for name, text in manifest["data"].items()}
    return plain


@pytest.mark.usefixtures("plane")  # its programs are there
def test_chart_and_kustomize_base_install_the_same():
    base = by_name(list(manifests()))
    base.pop(("Namespace", NAMESPACE))  # helm receives the namespace as an option
    chart = by_name(charted())
    assert chart.keys() == base.keys()
    assert {name: said(one) for name, one in chart.items()} == {name: said(one) for name, one in base.items()}


@pytest.mark.parametrize(
    "value, kind",
    [("serviceMonitor", "ServiceMonitor"), ("rules", "PrometheusRule"), ("dashboard", "ConfigMap")],
)
@pytest.mark.usefixtures("plane")
def test_monitoring_objects_are_rendered_only_if_enabled(value, kind):
    without, wanted = by_name(charted()), by_name(charted("--set", f"{value}.enabled=true"))
    assert {one[0] for one in wanted.keys() - without.keys()} == {kind}


@pytest.mark.parametrize(
    "wrong",
    [
        "replicas=0",
        "imge.tag=x",
        "image.pullPolicy=Sometimes",
        "rules.enabled=maybe",
        "networkPolicy.from=everywhere",
        "networkPolicy.egressPorts={0}",
        "image.digest=latest",
    ],
)
@pytest.mark.usefixtures("plane")
def test_invalid_value_is_refused(wrong):
    with pytest.raises(subprocess.CalledProcessError) as refused:
        charted("--set", wrong)
    assert "values don't meet the specifications of the schema" in refused.value.stderr


def ingress(found: list[Manifest]) -> list[Manifest]:
    policies = [one for one in found if one["kind"] == "NetworkPolicy"]
    assert policies
    return [rule for policy in policies for rule in policy["spec"].get("ingress") or ()]


@pytest.mark.usefixtures("plane")
@pytest.mark.parametrize("way", [manifests, charted], ids=["kustomize", "helm"])
def test_only_named_peers_may_connect_to_the_server(way):
    rules = ingress(list(way()))
    assert rules
    # A rule without `from`, or an empty peer, allows every client.
    assert all(rule.get("from") and all(rule["from"]) for rule in rules)
    assert {"namespaceSelector": {}} not in [peer for rule in rules for peer in rule["from"]]


@pytest.mark.usefixtures("plane")
def test_chart_without_peers_lets_no_client_connect():
    assert ingress(charted("--set", "networkPolicy.from=null")) == []


@pytest.mark.usefixtures("plane")
@pytest.mark.parametrize("way", [manifests, charted], ids=["kustomize", "helm"])
def test_batchsched_may_connect_to_the_usual_ports_of_api_servers_and_to_no_other(way):
    (policy,) = (one for one in way() if one["kind"] == "NetworkPolicy")
    (rule,) = policy["spec"]["egress"]
    assert {port["port"] for port in rule["ports"]} == {53, 443, 6443, 8443, 16443}


@pytest.mark.usefixtures("plane")
def test_chart_lets_batchsched_connect_to_the_ports_of_its_values():
    policy = by_name(charted("--set", "networkPolicy.egressPorts={9443}"))["NetworkPolicy", "batchsched"]
    assert {port["port"] for port in policy["spec"]["egress"][0]["ports"]} == {53, 9443}


@pytest.mark.usefixtures("plane")
@pytest.mark.parametrize("way", [manifests, charted], ids=["kustomize", "helm"])
def test_disk_space_of_a_replica_is_limited(way):
    pod = by_name(list(way()))["Deployment", "batchsched"]["spec"]["template"]["spec"]
    assert all(volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"] if "emptyDir" in volume)
    assert all("ephemeral-storage" in container["resources"]["limits"] for container in pod["containers"])


@pytest.mark.usefixtures("plane")
def test_chart_runs_the_image_of_the_stated_digest():
    digest = f"sha256:{'a' * 64}"
    chart = by_name(charted("--set", f"image.digest={digest},image.tag=ignored"))
    (container,) = chart["Deployment", "batchsched"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"batchsched@{digest}"


def rights(found: list[Manifest]) -> set[tuple[str, str, str]]:
    """What the ClusterRole of batchsched gives: API group, resource, verb."""
    role = by_name(found)["ClusterRole", "batchsched"]
    return {
        right
        for rule in role["rules"]
        for right in itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }


@pytest.mark.usefixtures("plane")
def test_chart_gives_no_right_to_patch_pods_if_the_configuration_forbids_it():
    removed = rights(charted()) - rights(charted("--set", "configuration.podGrouper.patchPods=false"))
    assert removed == {("", "pods", "patch")}


@pytest.mark.usefixtures("plane")
def test_chart_gives_no_rights_for_the_pod_grouper_if_it_is_disabled():
    without = rights(charted("--set", "configuration.podGrouper.enabled=false"))
    removed = rights(charted()) - without
    assert {("", "pods", "patch"), ("batch", "jobs", "watch")} <= removed
    assert {(OURS, "podgroups", verb) for verb in ("create", "patch", "delete")} <= removed
    assert {(OURS, "podgroups", "watch"), (OURS, "podgroups/status", "patch")} <= without


def test_every_metric_that_is_watched_exists():
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    watched = {
        name
        for file in ("rules.yaml", "dashboard.json")
        for name in re.findall(r"\b(?:batchsched|scheduler)_[a-z_]+", (CHART / "files" / file).read_text())
    }
    missing = {name for name in watched if re.sub(r"_(bucket|sum|count)$", "", name) not in page}
    assert not missing


def path_of(manifest: Manifest) -> str:
    """Return the collection in which a manifest is made."""
    version = manifest["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    kind = manifest["kind"].lower()
    plural = {"networkpolicy": "networkpolicies"}.get(kind, f"{kind}s")
    namespace = manifest["metadata"].get("namespace")
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


@pytest.mark.parametrize("way", [manifests, charted], ids=["kustomize", "helm"])
def test_api_server_accepts_every_manifest_unchanged(plane: ControlPlane, way):
    service_account(plane)  # with its namespace
    for manifest in way():
        if manifest["kind"] in ("Namespace", "CustomResourceDefinition"):
            continue  # those are there
        answer = plane.admin.create(
            f"{path_of(manifest)}?dryRun=All&fieldValidation=Strict",
            {**manifest, "metadata": {**manifest["metadata"], "name": "batchsched-anew"}},
        )
        assert answer["kind"] == manifest["kind"]
