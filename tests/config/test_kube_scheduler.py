"""A file of kube-scheduler: it loads as it is, its mistakes are named by their path, and what does nothing is said."""

from pathlib import Path

import pytest

from batchsched.config.kube_scheduler import KubeSchedulerConfiguration
from batchsched.config.load import load_configuration, load_configuration_with_warnings
from batchsched.config.plugins import Plugins
from batchsched.config.schema import Profile
from batchsched.errors import InvalidInput

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
EXISTING = (
    HEAD
    + """
parallelism: 8
leaderElection: {leaderElect: true, leaseDuration: 15s, renewDeadline: 10s, retryPeriod: 2s, resourceLock: leases}
clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf, acceptContentTypes: "", qps: 50, burst: 100}
percentageOfNodesToScore: 20
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 10
extenders: null
profiles:
- schedulerName: default-scheduler
  plugins:
    preEnqueue: {}
    score:
      disabled: [{name: ImageLocality}]
      enabled: [{name: NodeResourcesFit, weight: 5}]
    multiPoint:
      enabled: [{name: NodeAffinity, weight: 7}]
      disabled: null
  pluginConfig:
  - name: NodeResourcesFit
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      ignoredResources: null
      scoringStrategy: {type: MostAllocated}
- schedulerName: second
  percentageOfNodesToScore: 30
"""
)


def refused(text):
    with pytest.raises(InvalidInput) as caught:
        load_configuration(HEAD + text)
    return f"{caught.value.field}: {caught.value.message}"


def test_existing_file_becomes_one_profile_for_each_scheduler_name():
    first, second = load_configuration(EXISTING).profiles
    assert (first.scheduler_name, second.scheduler_name) == ("default-scheduler", "second")
    assert [one.name for one in first.plugins.score.disabled] == ["ImageLocality"]
    assert [(one.name, one.weight) for one in first.plugins.multi_point.enabled] == [("NodeAffinity", 7)]
    assert first.plugin_arguments("NodeResourcesFit") == {"scoringStrategy": {"type": "MostAllocated"}}
    assert first.solver.enabled
    assert (first.percentage_of_nodes_to_score, second.percentage_of_nodes_to_score) == (20, 30)


def test_settings_without_effect_are_reported_once_with_the_reason(tmp_path):
    file = tmp_path / "scheduler.yaml"
    file.write_text(EXISTING)
    lines = load_configuration_with_warnings(file)[1]
    named = [line.removeprefix(f"{file}: ").partition(":")[0] for line in lines]
    assert named == [
        "parallelism",
        "percentageOfNodesToScore",
        "podInitialBackoffSeconds",
        "profiles[1].percentageOfNodesToScore",
    ]
    assert lines[0] == f"{file}: parallelism: has no effect; all nodes are filtered at once"


def test_settings_equal_to_the_behaviour_are_not_reported():
    text = HEAD + "percentageOfNodesToScore: 100\nextenders: []\nprofiles: [{percentageOfNodesToScore: 100}]"
    assert load_configuration_with_warnings(text)[1] == ()


@pytest.mark.parametrize("name", ["kube_scheduler.yaml", "kube_scheduler_1_36.yaml"])
def test_written_defaults_of_kube_scheduler_are_not_reported(name):
    text = (Path(__file__).parent / name).read_text()
    assert load_configuration_with_warnings(text)[1] == ()
    other = text.replace("qps: 50", "qps: 500").replace("parallelism: 16", "parallelism: 4")
    assert [line.partition(":")[0] for line in load_configuration_with_warnings(other)[1]] == [
        "parallelism",
        "clientConnection",
    ]


def test_plugins_for_placements_of_pod_groups_are_accepted_and_reported():
    text = (Path(__file__).parent / "kube_scheduler.yaml").read_text()
    points = ("placementGenerate", "placementScore", "podGroupPostFilter")
    for point in points:
        text = text.replace(f"{point}: {{}}", f"{point}: {{enabled: [{{name: PodGroupPodsCount}}]}}")
    assert [line.partition(":")[0] for line in load_configuration_with_warnings(text)[1]] == [
        f"profiles[0].plugins.{point}" for point in points
    ]
    made = load_configuration(text).profiles[0]
    assert type(made.plugins) is Plugins
    assert Profile.model_validate(made.model_dump(by_alias=True)) == made


def test_lease_and_kubeconfig_are_the_stated_ones_and_the_default_lease_is_not_that_of_kube_scheduler():
    made = load_configuration(EXISTING)
    assert made.client_connection.kubeconfig == "/etc/kubernetes/scheduler.conf"
    assert made.leader_election.resource_name == "batchsched"
    stated = "leaderElection: {leaseDuration: 30s, resourceName: mine, resourceNamespace: there}"
    lease = load_configuration(HEAD + stated).leader_election
    assert (lease.lease_duration, lease.resource_namespace, lease.resource_name) == ("30s", "there", "mine")


def test_a_file_without_profiles_has_the_default_scheduler():
    assert [one.scheduler_name for one in load_configuration(HEAD).profiles] == ["default-scheduler"]
    assert [one.scheduler_name for one in load_configuration(HEAD + "profiles: [{}]").profiles] == [
        "default-scheduler"
    ]


MISTAKES = """
parallelism: 0 => parallelism: expected more than 0, found 0
paralelism: 1 => paralelism: unknown field; did you mean parallelism?
percentageOfNodesToScore: 101 => percentageOfNodesToScore: expected 100 or less, found 101
podInitialBackoffSeconds: 20 => podMaxBackoffSeconds: expected podInitialBackoffSeconds, 20, or more
leaderElection: {leaseDuration: soon} => leaderElection.leaseDuration: expected a duration such as 15s
leaderElection: {leaseDuration: 5s} => leaderElection.leaseDuration: expected more than renewDeadline
leaderElection: {retryPeriod: 1m} => leaderElection.renewDeadline: expected more than retryPeriod
clientConnection: {burst: -1} => clientConnection.burst: expected 0 or more, found -1
profiles: [{schedulerName: a}, {}] => profiles[1].schedulerName: is required if there are several profiles
profiles: [{schedulerName: a}, {schedulerName: a}] => profiles[1].schedulerName: 'a' is the name of another profile
profiles: [{plugins: {scores: {}}}] => profiles[0].plugins.scores: unknown field; did you mean score?
profiles: [{pluginConfig: [{name: a}, {name: a}]}] => profiles[0].pluginConfig: a occurs more than once
extenders: [{}] => extenders[0].urlPrefix: is required; add it
extenders: [{urlPrefix: u, enableHTTPS: 7}] => extenders[0].enableHTTPS: expected true or false, found 7
extenders: [{urlPrefix: u, httpTimeout: -1s}] => extenders[0].httpTimeout: expected 0 or more
"""
LONG_MISTAKES = [
    (
        "profiles: [{plugins: {score: {enabled: [{weight: 2}]}}}]",
        "profiles[0].plugins.score.enabled[0].name: is required; add it",
    ),
    (
        "profiles: [{plugins: {score: {enabled: [{name: a}, {name: a}]}}}]",
        "profiles[0].plugins.score.enabled: a occurs more than once",
    ),
    (
        "profiles: [{plugins: {enabled: [{name: a}]}}]",
        "profiles[0].plugins.enabled: unknown field; did you mean multiPoint.enabled?",
    ),
    (
        "profiles: [{pluginConfig: [{name: A, args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: BArgs}}]}]",
        "profiles[0].pluginConfig[0].args.kind: expected 'AArgs', found 'BArgs'",
    ),
    (
        "extenders: [{urlPrefix: u, prioritizeVerb: p}]",
        "extenders[0].weight: expected 1 or more because prioritizeVerb is set",
    ),
    (
        "extenders: [{urlPrefix: u, bindVerb: b}, {urlPrefix: v, bindVerb: b}]",
        "extenders[1].bindVerb: only one extender may bind",
    ),
    (
        "extenders: [{urlPrefix: u, managedResources: [{name: r}, {name: r}]}]",
        "extenders[0].managedResources: r occurs more than once",
    ),
]


@pytest.mark.parametrize(
    "text, message", [*(line.split(" => ") for line in MISTAKES.strip().splitlines()), *LONG_MISTAKES]
)
def test_a_mistake_is_named_by_its_path(text, message):
    assert message in refused(text)


def test_an_older_version_is_refused_with_the_one_that_is_read():
    with pytest.raises(InvalidInput) as caught:
        load_configuration(EXISTING.replace("k8s.io/v1\nkind: Kube", "k8s.io/v1beta3\nkind: Kube", 1))
    assert caught.value.field == "apiVersion"
    assert caught.value.message == (
        "expected 'kubescheduler.config.k8s.io/v1', found 'kubescheduler.config.k8s.io/v1beta3'"
    )


def test_the_kind_or_the_group_identifies_a_file_of_kube_scheduler():
    for text in ("kind: KubeSchedulerConfiguration", "apiVersion: kubescheduler.config.k8s.io/v1"):
        with pytest.raises(InvalidInput, match="is required; add it"):
            load_configuration(text)


def test_null_means_not_stated():
    made = KubeSchedulerConfiguration.model_validate(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "parallelism": None,
            "profiles": None,
        }
    )
    assert (made.parallelism, made.profiles, made.warnings()) == (16, (), ())
