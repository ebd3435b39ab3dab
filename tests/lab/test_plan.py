import pytest

from batchsched.errors import InvalidInput
from batchsched.lab.plan import plan_runs
from batchsched.lab.scenario import load_scenario
from tests.lab.scenarios import scenario, written


def keys(made):
    return [run.result_key for run in plan_runs(made)]


def test_every_workload_is_run_under_every_policy_with_every_seed():
    made = [(run.workload.name, run.policy, run.seed) for run in plan_runs(scenario())]
    assert made == [("drawn", "fcfs", 0), ("drawn", "fcfs", 1), ("drawn", "sjf", 0), ("drawn", "sjf", 1)]


def test_keys_are_the_same_each_time_and_different_for_each_run():
    assert keys(scenario()) == keys(scenario())
    assert len(set(keys(scenario()))) == 4


def test_names_are_not_part_of_a_key():
    renamed = scenario(policies=[{"name": "first", "profile": {"policy": {"name": "fcfs"}}}])
    assert keys(renamed) == keys(scenario())[:2]


@pytest.mark.parametrize(
    "change",
    [
        {"cluster": {"nodes": 5}},
        {"queues": []},
        {"profile": {"selection": "weight"}},
        {"sessionInterval": 5},
        {"resource": "cpu"},
        {"workloads": [{"name": "drawn", "generate": {"gangs": 21}}]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_everything_that_determines_a_result_is_part_of_its_key(change):
    assert set(keys(scenario(**change))).isdisjoint(keys(scenario()))


def test_the_content_of_a_trace_is_part_of_its_key_and_its_path_is_not(tmp_path):
    rows = "; MaxProcs: 4\n1 0 -1 10 2 -1 -1 2 10 -1\n"
    found = []
    for folder, text in (("one", rows), ("two", rows), ("three", rows + "2 5 -1 10 2 -1 -1 2 10 -1\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "t.swf").write_text(text)
        workloads = [{"name": "t", "swf": {"trace": "t.swf"}}]
        found.append(keys(load_scenario(written(tmp_path / folder / "s.yaml", workloads=workloads))))
    assert found[0] == found[1]
    assert set(found[2]).isdisjoint(found[0])


def test_a_policy_may_change_queues_all_of_them_or_one():
    policies = [{"name": "p", "queues": {"*": {"weight": 2.0}, "b": {"weight": 3.0, "parent": "a"}}}]
    run = plan_runs(scenario(policies=policies))[0]
    laid = {queue.name: queue.spec for queue in run.queues_with_policy_changes(())}
    assert (laid["a"].weight, laid["b"].weight, laid["b"].parent) == (2.0, 3.0, "a")
    assert laid["a"].guarantee == {"nvidia.com/gpu": "16"}


@pytest.mark.parametrize(
    "queues, complaint", [({"c": {"weight": 1.0}}, "no queue 'c'"), ({"a": {"wait": 1}}, "queue a: wait")]
)
def test_an_invalid_change_of_queues_names_the_policy_and_the_queue(queues, complaint):
    run = plan_runs(scenario(policies=[{"name": "p", "queues": queues}]))[0]
    with pytest.raises(InvalidInput, match=f"policy p: .*{complaint}"):
        run.queues_with_policy_changes(())


def test_an_invalid_profile_names_its_policy():
    with pytest.raises(InvalidInput, match=r"policy p: profile\.polcy"):
        plan_runs(scenario(policies=[{"name": "p", "profile": {"polcy": {}}}]))


@pytest.mark.parametrize(
    "profile, field",
    [
        ({"queuePolicy": {"name": "frob"}}, "profile.queuePolicy.name"),
        ({"policy": {"name": "frob"}}, "profile.policy.name"),
        (
            {"plugins": {"filter": {"enabled": [{"name": "Frob"}]}}},
            r"profile.plugins.filter.enabled\[0\].name",
        ),
    ],
    ids=["queue policy", "policy", "plugin"],
)
def test_missing_objects_that_a_profile_names_are_reported_before_any_run(profile, field):
    with pytest.raises(InvalidInput, match=rf"policy x: {field}: there is no p.* '[Ff]rob'"):
        list(plan_runs(scenario(policies=[{"name": "x", "profile": profile}])))
