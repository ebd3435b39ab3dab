"""The pages of docs/workloads: each manifest gets the PodGroup of its page, and is placed completely or not at all."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.cli import ExitCode, run_command
from batchsched.config.load import load_configuration
from batchsched.config.schema import Profile
from batchsched.podgrouper.configured_rules import built_in_and_configured_owner_kinds
from batchsched.podgrouper.rules import OWNERS, read_owner_gang_settings
from batchsched.scheduler.app import SchedulerApp
from batchsched.scheduler.what_if_cluster import WhatIfCluster
from batchsched.session.session import decide
from tests.service.town import Clock

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "workloads"
INDEX = (FOLDER / "index.md").read_text("utf-8")
PAGES = sorted(page.stem for page in FOLDER.glob("*.md") if page.stem != "index")
WITHOUT_OWNER = {"pods", "workload-api"}
"""Pages of gangs that no owner of pods states."""
GANGS = {"leaderworkerset": 2}
"""The gangs of a manifest with several; each of the others is one gang."""
UNGROUPED = {"workflow"}
"""The pages of kinds without a PodGroup."""
GROUPED = [name for name in PAGES if name not in UNGROUPED]
NOW = 1_767_603_600.0
YAML_BLOCK = re.compile(r"^```yaml[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def page(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text("utf-8")


def manifests(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text("utf-8")))


def shown_spec(name: str) -> dict[str, Any]:
    """Return the spec of the PodGroup that a page shows: its last block of YAML."""
    spec: dict[str, Any] = yaml.safe_load(YAML_BLOCK.findall(page(name))[-1])
    return spec


def needed_pods(spec: dict[str, Any]) -> int:
    return int(spec.get("minMember") or sum(part["minMember"] for part in spec["subGroups"]))


def node(pods: int) -> dict[str, Any]:
    offered = {"cpu": "64", "memory": "256Gi", "pods": str(pods)}
    metadata = {"name": "n0", "labels": {"example.com/block": "a", "example.com/rack": "a-1"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": offered}}


def custom(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.batchsched.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def snapshot_of(folder: Path, *objects: dict[str, Any]) -> Snapshot:
    """Return a cluster with objects, and with the pods that controllers would create for them."""
    nowhere: Any = None
    supposed = WhatIfCluster(SchedulerApp(nowhere, Clock(), [Profile()]), "batchsched", NOW)
    file = folder / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects), "utf-8")
    supposed.add_objects_from_files([file])
    assert not supposed.warnings
    return supposed.service.cache.snapshot()


def decision_of(snapshot: Snapshot) -> Decision:
    return decide(snapshot, Profile(), NOW, 0)


def specs_in(snapshot: Snapshot) -> list[dict[str, Any]]:
    return [
        group.spec.model_dump(mode="json", by_alias=True, exclude_unset=True) for group in snapshot.pod_groups
    ]


def test_every_kind_that_the_pod_grouper_knows_has_a_page_with_a_manifest():
    assert {kind.name.lower() for kind in OWNERS} - {"replicaset"} | WITHOUT_OWNER == set(PAGES)
    assert {file.stem for file in FOLDER.glob("*.yaml")} == set(PAGES)
    known = {(kind.api_version, kind.name) for kind in OWNERS}
    for name in set(PAGES) - WITHOUT_OWNER:
        *_, manifest = manifests(name)
        assert (manifest["apiVersion"], manifest["kind"]) in known
        assert manifest["kind"].lower() == name


@pytest.mark.parametrize("name", PAGES)
def test_page_includes_its_manifest_and_is_on_the_overview(name):
    assert f'--8<-- "docs/workloads/{name}.yaml"' in page(name)
    assert f"]({name}.md)" in INDEX


@pytest.mark.parametrize("name", GROUPED)
def test_page_shows_the_pod_group_that_the_manifest_gets(name, tmp_path):
    specs = specs_in(snapshot_of(tmp_path, *manifests(name)))
    assert specs == [shown_spec(name)] * GANGS.get(name, 1)


@pytest.mark.parametrize("name", GROUPED)
def test_all_pods_of_the_manifest_are_placed_on_a_cluster_with_room(name, tmp_path):
    snapshot = snapshot_of(tmp_path, node(pods=50), *manifests(name))
    decision = decision_of(snapshot)
    assert {one.pod for one in decision.assignments} == {pod.name for pod in snapshot.pods}
    assert not decision.refusals


@pytest.mark.parametrize("name", GROUPED)
def test_command_of_the_overview_decides_over_the_manifest_and_a_cluster_in_a_file(name, capfd):
    command = "decide examples/cluster.yaml docs/workloads/job.yaml"
    assert f"$ batchsched {command} " in INDEX
    files = [str(ROOT / file.replace("job", name)) for file in command.split()[1:]]
    assert run_command(["decide", *files, "-o", "json"]) == ExitCode.OK
    decision = json.loads(capfd.readouterr().out)
    assert len(decision["assignments"]) >= needed_pods(shown_spec(name))
    assert not decision["refusals"]


@pytest.mark.parametrize("name", [name for name in GROUPED if name != "sparkapplication"])
def test_no_pod_of_the_manifest_is_placed_if_room_for_one_is_missing(name, tmp_path):
    room = needed_pods(shown_spec(name)) - 1
    assert room >= 1
    decision = decision_of(snapshot_of(tmp_path, node(pods=room), *manifests(name)))
    assert not decision.assignments
    assert len(decision.refusals) == GANGS.get(name, 1)


@pytest.mark.parametrize("name", sorted(set(GROUPED) - WITHOUT_OWNER))
def test_labels_and_annotations_of_the_overview_set_queue_topology_and_minimum(name, tmp_path):
    *others, manifest = manifests(name)
    stated = yaml.safe_load(YAML_BLOCK.findall(INDEX)[0])["metadata"]
    manifest["metadata"] |= stated
    levels = [{"name": level, "nodeLabel": f"example.com/{level}"} for level in ("block", "rack")]
    snapshot = snapshot_of(
        tmp_path,
        node(pods=50),
        custom("Queue", "research"),
        custom("Topology", "default", levels=levels),
        *others,
        manifest,
    )
    # The driver of Spark creates the executors, so the gang cannot wait for two pods.
    least = 1 if name == "sparkapplication" else 2
    for spec in specs_in(snapshot):
        assert (spec["queue"], spec["minMember"]) == ("research", least)
        assert spec["topology"] == {"required": "block", "preferred": "rack"}
    decision = decision_of(snapshot)
    assert len(decision.assignments) == len(snapshot.pods)


def test_example_of_a_rule_in_the_overview_forms_the_gang_of_an_object():
    configuration = load_configuration(YAML_BLOCK.findall(INDEX)[1])
    (kind,) = built_in_and_configured_owner_kinds(configuration.pod_grouper.rules).configured
    template = {"spec": {"containers": [{"name": "main", "image": "none"}]}}
    run = {
        "metadata": {"labels": {"example.com/team": "research"}},
        "spec": {
            "coordinator": {"template": template},
            "workerGroups": [{"name": "gpu", "replicas": 4, "minReplicas": 2, "template": template}],
        },
    }
    found = read_owner_gang_settings(kind.rule, run).build_pod_group_template({})
    assert found is not None
    assert (found.spec.queue, found.spec.min_member, found.pods) == ("research", 3, 5)
    assert [(sub.name, sub.min_member) for sub in found.spec.sub_groups] == [("coordinator", 1), ("gpu", 2)]
