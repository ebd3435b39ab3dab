"""The pages on support and sizing state the versions, kinds and resources of the code and of the manifests."""

import re
import tomllib
from pathlib import Path

import yaml

from batchsched.api.decision import REASONS
from batchsched.podgrouper.rules import OWNERS
from tests.controlplane.build import VERSIONS

ROOT = Path(__file__).parents[2]
SUPPORT = (ROOT / "docs" / "support.md").read_text("utf-8")
SIZING = (ROOT / "docs" / "sizing.md").read_text("utf-8")


def test_versions_of_python_are_those_that_the_package_accepts():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    versions = [
        line.rpartition(" ")[2] for line in project["classifiers"] if re.search(r"Python :: 3\.\d+$", line)
    ]
    assert f"| {', '.join(versions)} | supported; the image uses " in SUPPORT
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    image = re.search(r"^ARG PYTHON=(\d+\.\d+)", dockerfile, re.MULTILINE)
    assert image
    assert f"the image uses {image[1]} |" in SUPPORT


def test_versions_of_kubernetes_are_those_of_the_tests_and_of_the_chart():
    for version in VERSIONS.values():
        assert f"kube-apiserver {version.removeprefix('v')}" in SUPPORT
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "batchsched" / "Chart.yaml").read_text("utf-8"))
    oldest = chart["kubeVersion"].removeprefix(">=").removesuffix(".0-0")
    assert f"| before {oldest} | not supported" in SUPPORT


def test_every_kind_that_the_pod_grouper_knows_is_supported():
    (row,) = (line for line in SUPPORT.splitlines() if "[creates the PodGroup]" in line)
    assert {kind.name for kind in OWNERS} <= set(re.findall(r"\w+", row))


def test_every_reason_that_the_page_names_exists():
    refused = SUPPORT.partition("## What is refused")[2]
    named = {
        name
        for row in re.findall(r"^\|.*\| (`.*) \|$", refused, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert "UnsupportedField" in named
    assert named <= REASONS.keys()


def test_resources_of_the_manifests_are_those_of_the_deployment():
    file = ROOT / "deploy" / "kustomize" / "base" / "deployment.yaml"
    (deployment,) = (
        document
        for document in yaml.safe_load_all(file.read_text("utf-8"))
        if document["kind"] == "Deployment"
    )
    resources = deployment["spec"]["template"]["spec"]["containers"][0]["resources"]
    cpu, memory, limit = (
        resources["requests"]["cpu"],
        resources["requests"]["memory"],
        resources["limits"]["memory"],
    )
    stated = f"request {cpu} CPU and {memory[:-2]} MiB, and limit memory to {limit[:-2]} GiB"
    assert stated in " ".join(SIZING.split())
