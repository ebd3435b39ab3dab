"""`batchsched dump` on a real API server: decisions over a dump are those over the cluster."""

import gzip
import json
import time

import pytest
import yaml
from msgspec.structs import replace

from batchsched.api.decision import to_json, without_measured_durations
from batchsched.cli import run_command
from batchsched.cli.live_cluster import LiveClusterOptions
from batchsched.cli.session import decide_live_session, decide_session_over_files
from tests.controlplane.objects import pod
from tests.e2e.owners import TEMPLATE, install, job, make, members, reference

SECRET = "s3cret"
ENV = [{"name": "TOKEN", "value": SECRET}]


@pytest.fixture
def busy(namespace):
    """Gangs of a Job, a JobSet, Volcano and a deleted Job, an invalid object, and environment variables."""
    namespace.nodes(2, cpu="4")
    namespace.queue("team", limit={"cpu": "3"})
    template = yaml.safe_load(yaml.safe_dump(TEMPLATE))
    template["spec"]["containers"][0]["env"] = ENV
    members(namespace, job(namespace, "whole", 2, template=template), range(2))
    members(namespace, job(namespace, "partial", 3, template=template), range(2))
    install(namespace.api, "jobset.x-k8s.io", "v1alpha2", "JobSet")
    replicated = [
        {"name": "a", "replicas": 1, "template": {"spec": {"parallelism": 2, "template": template}}}
    ]
    jobset = make(namespace, "jobset.x-k8s.io/v1alpha2", "JobSet", "set", replicatedJobs=replicated)
    members(namespace, job(namespace, "set-a-0", 2, jobset), range(2))
    install(namespace.api, "scheduling.volcano.sh", "v1beta1", "PodGroup")
    make(namespace, "scheduling.volcano.sh/v1beta1", "PodGroup", "volcano", minMember=1)
    group = "scheduling.volcano.sh/v1beta1"
    make(namespace, group, "PodGroup", "invalid", minMember="one")
    member = pod("v-0", spec={"containers": [{"name": "main", "image": "none", "env": ENV}]})
    member["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "volcano"}
    namespace.api.create(namespace.path("pods"), member)
    gone = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "gone", "uid": "gone"}}
    orphan = pod("orphan")
    orphan["metadata"]["ownerReferences"] = [reference(gone)]
    namespace.api.create(namespace.path("pods"), orphan)
    namespace.pod("runs")
    namespace.bind("runs", "node-0")
    yield namespace
    # Other tests read the whole cluster, and report each object that is set aside.
    namespace.api.delete(f"{namespace.path('podgroups', group=group)}/invalid")


@pytest.fixture
def dump(busy, plane, tmp_path):
    """Written one second later, so that an object of that moment is newer than each of the dump."""
    time.sleep(1)
    file = tmp_path / "cluster.json.gz"
    assert run_command(["dump", "--to", str(file), "--kubeconfig", str(plane.kubeconfig())]) == 0
    return file


def test_decision_over_a_dump_is_that_over_the_live_cluster(dump, plane):
    live = decide_live_session(LiveClusterOptions(plane.kubeconfig(), None, None, None), 0)
    offline = decide_session_over_files([dump], None, None, 0, None)
    decision, expected = (
        without_measured_durations(offline.decision),
        without_measured_durations(live.decision),
    )
    (invalid,) = expected.set_aside
    expected = replace(expected, set_aside=(replace(invalid, file=str(dump)),))
    assert to_json(decision) == to_json(expected)
    assert (len(decision.assignments), len(decision.set_aside)) == (5, 1)
    assert {refusal.reason for refusal in decision.refusals} == {"NotEnoughPods", "PodGroupNotFound"}


def test_dump_contains_no_environment_variables(dump):
    content = gzip.decompress(dump.read_bytes()).decode()
    assert "whole-0" in content
    assert SECRET not in content


def test_what_if_over_a_dump_answers_as_over_the_live_cluster(dump, plane, tmp_path, capfd):
    file = tmp_path / "job.yaml"
    spec = {"parallelism": 2, "completions": 2, "template": TEMPLATE}
    meta = {"name": "new", "namespace": "default"}
    file.write_text(yaml.safe_dump({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}))
    answers = []
    for source in (["--kubeconfig", str(plane.kubeconfig())], ["--cluster", str(dump)]):
        capfd.readouterr()
        assert run_command(["what-if", "-f", str(file), *source, "-o", "json"]) == 0
        answers.append(json.loads(capfd.readouterr().out))
        for gang in answers[-1]["gangs"]:
            gang["turn"].pop("waited")  # seconds since the command read the file
    live, offline = answers
    assert offline == live
    assert [gang["state"] for gang in offline["gangs"]] == ["Placed"]


def test_dump_without_permission_to_list_names_the_kind(busy, plane, tmp_path, capfd):
    busy.api.create(busy.path("serviceaccounts"), {"metadata": {"name": "unprivileged"}})
    kubeconfig = plane.kubeconfig(plane.token_of(busy.name, "unprivileged"))
    file = tmp_path / "cluster.json"
    assert run_command(["dump", "--to", str(file), "--kubeconfig", str(kubeconfig)]) == 1
    assert "the cluster does not list nodes" in capfd.readouterr().err
    assert not file.exists()
