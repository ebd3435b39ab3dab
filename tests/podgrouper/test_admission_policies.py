"""The admission policies of `deploy/` read each field by which an owner of pods names a queue or a PriorityClass.

Pod templates and the components of an AppWrapper are left out: `docs/security.md` says so.
"""

import ast
import re
from pathlib import Path

import pytest

from batchsched.podgrouper import training_rules
from batchsched.podgrouper.rules import OWNERS, read_owner_gang_settings
from tests.controlplane.installed import policies
from tests.podgrouper.owners import (
    API,
    app_wrapper,
    clique,
    job,
    jobset,
    owner,
    pod_clique_set,
    pytorch,
    ray_spec,
    replicas,
    replicated,
    spark,
    workers,
)
from tests.podgrouper.test_rules import RULES

GROUP = "scheduling.batchsched.dev"
GANGS = [
    job(2),
    owner("Deployment", replicas=2),
    owner("ReplicaSet", replicas=2),
    owner("StatefulSet", podManagementPolicy="Parallel", replicas=2),
    jobset(replicated("a", 2)),
    owner("LeaderWorkerSet", replicas=2, leaderWorkerTemplate={"size": 3}),
    pytorch(),
    owner("TFJob", tfReplicaSpecs=replicas(Worker=2)),
    owner("JAXJob", jaxReplicaSpecs=replicas(Worker=2)),
    owner("XGBoostJob", xgbReplicaSpecs=replicas(Worker=2)),
    owner("PaddleJob", paddleReplicaSpecs=replicas(Worker=2)),
    owner("MPIJob", mpiReplicaSpecs=replicas(Launcher=1, Worker=2)),
    owner("RayCluster", **ray_spec(workers(minReplicas=2))),
    owner("RayJob", rayClusterSpec=ray_spec(workers(minReplicas=2))),
    spark(),
    pod_clique_set(clique("a", 2)),
    app_wrapper(job(2)),
]
WITHOUT_GANGS = {"TrainJob", "RayService", "Workflow"}
"""Kinds of which only labels and annotations are read."""


def words_of_rules():
    """Every text in the modules of rules that may be the name of a field."""
    folder = Path(training_rules.__file__).parent
    nodes = [node for file in folder.glob("*_rules.py") for node in ast.walk(ast.parse(file.read_text()))]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return sorted(text for text in texts if re.fullmatch("[a-z][A-Za-z]+", text))


def merged(stated, added):
    """Add fields to a manifest that keeps what it states."""
    if isinstance(stated, dict) and isinstance(added, dict):
        names = stated.keys() | added.keys()
        return {name: merged(stated.get(name, added.get(name)), added.get(name)) for name in names}
    return stated


def fields_read(one, key, field):
    """The fields of an owner that set this field of its PodGroup; each possible field states its own path."""
    words = words_of_rules()
    names = [name for name in words if name.lower().startswith((key.partition("-")[0], field))]
    found = set()
    for above in words:
        path = f"spec.{above}"
        below = {name: f"{path}.{name}" for name in names}
        below |= {word: {name: f"{path}.{word}.{name}" for name in names} for word in set(words) - set(names)}
        manifest = merged(one, {"spec": {above: below, **{name: f"spec.{name}" for name in names}}})
        found.add(_stated(manifest, field))
    for place in ("labels", "annotations"):
        path = f"metadata.{place}[{GROUP}/{key}]"
        found.add(_stated(merged(one, {"metadata": {place: {f"{GROUP}/{key}": path}}}), field))
    return found - {None, ""}


def _stated(manifest, field):
    rule = RULES[manifest["kind"], API[manifest["kind"]]]
    template = read_owner_gang_settings(rule, manifest).build_pod_group_template({})
    return getattr(template.spec, field) if template is not None else None


def paths_of_policy(policy, variable, name):
    """The fields of an object that a variable of a policy reads."""
    variables = next(one["spec"]["variables"] for one in policies() if one["metadata"]["name"] == policy)
    expression = next(one["expression"] for one in variables if one["name"] == variable)
    paths = re.findall(rf"\b{name}((?:\.\??\w+|\[\?'[^']+'\])+)", expression)
    return {path.replace("?", "").replace("'", "").removeprefix(".") for path in paths}


@pytest.mark.parametrize(
    "policy, key, field",
    [
        ("batchsched-queues", "queue", "queue"),
        ("batchsched-priority-classes", "priority-class", "priority_class_name"),
    ],
)
def test_policy_reads_each_field_of_an_owner_that_names_a_queue_or_a_priority_class(policy, key, field):
    read = {path for one in GANGS for path in fields_read(one, key, field)}
    assert len(read) > 3, read
    assert read <= paths_of_policy(policy, "named", "object")
    assert paths_of_policy(policy, "named", "object") == paths_of_policy(policy, "before", "oldObject")


def test_every_kind_that_forms_gangs_is_compared_with_the_policies():
    assert {kind.name for kind in OWNERS} == {one["kind"] for one in GANGS} | WITHOUT_GANGS
