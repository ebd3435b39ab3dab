import pytest

from batchsched.errors import InvalidInput
from batchsched.lab.scenario import load_scenario, unknown_queue_warnings, with_value_at_path
from tests.lab.scenarios import scenario, stated, written


def test_a_number_of_seeds_counts_from_zero():
    assert scenario(seeds=3).seeds == (0, 1, 2)
    assert scenario(seeds=[7, 9]).seeds == (7, 9)


def test_paths_are_relative_to_the_file(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/trace.swf").write_text("")
    made = load_scenario(
        written(tmp_path / "s.yaml", workloads=[{"name": "t", "swf": {"trace": "data/trace.swf"}}])
    )
    swf = made.workloads[0].swf
    assert swf is not None
    assert swf.trace == tmp_path / "data/trace.swf"


def test_a_file_that_is_not_there_is_named_before_anything_runs(tmp_path):
    with pytest.raises(InvalidInput, match=r"workload t: swf.trace: there is no file '.*absent.swf'"):
        load_scenario(written(tmp_path / "s.yaml", workloads=[{"name": "t", "swf": {"trace": "absent.swf"}}]))


@pytest.mark.parametrize(
    "change, complaint",
    [
        ({"workloads": [{"name": "w"}]}, "exactly one of swf, philly"),
        ({"workloads": [{"name": "w", "generate": {"gangs": 0}}]}, "gangs: expected"),
        ({"workloads": [{"name": "w", "generate": {"swing": 1.0}}]}, "swing: expected"),
        ({"seeds": [1, 1]}, "different numbers"),
        ({"seeds": 0}, "seeds: expected a number of seeds from 1 on"),
        ({"policies": [{"name": "x"}, {"name": "x"}]}, "two of them are named 'x'"),
        ({"polices": []}, "polices"),
        ({"queues": [{"metadata": {"name": "q"}, "spec": {"wieght": 2}}]}, "did you mean weight"),
    ],
    ids=[
        "no source",
        "no gang",
        "full swing",
        "twice a seed",
        "no seed",
        "twice a name",
        "misspelt",
        "misspelt in a queue",
    ],
)
def test_an_invalid_scenario_is_refused_with_a_remedy(tmp_path, change, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        load_scenario(written(tmp_path / "s.yaml", **change))


@pytest.mark.parametrize("text", ["[", "just text", "- a list"])
def test_a_document_that_is_not_a_mapping_is_refused_with_its_file(tmp_path, text):
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(InvalidInput, match=r"s\.yaml"):
        load_scenario(tmp_path / "s.yaml")


def test_changes_reach_parts_of_lists_by_name_and_by_number(tmp_path):
    path = written(tmp_path / "s.yaml")
    made = load_scenario(
        path, [("workloads.drawn.generate.gangs", 7), ("policies.1.name", "short"), ("seeds", 1)]
    )
    drawn = made.workloads[0].generate
    assert drawn is not None
    assert drawn.gangs == 7
    assert [one.name for one in made.policies] == ["fcfs", "short"]
    assert made.seeds == (0,)


def test_a_change_does_not_modify_the_original():
    before = stated()
    assert with_value_at_path(before, "queues.a.spec.weight", 3)["queues"][0]["spec"]["weight"] == 3
    assert before == stated()


@pytest.mark.parametrize("place", ["workloads.absent.generate", "name.first", "seeds..x"])
def test_a_change_of_a_missing_path_is_refused(place):
    with pytest.raises(InvalidInput):
        with_value_at_path(stated(), place, 1)


@pytest.mark.parametrize(
    "parameter, complaint",
    [
        ({"low": 1}, "low and high, or choices"),
        ({"low": 2, "high": 1}, "low below high"),
        ({"low": 0, "high": 1, "log": True}, "low above 0"),
        ({"low": 0, "high": 1, "choices": [1]}, "low and high, or choices"),
    ],
)
def test_a_parameter_is_a_range_or_a_list(tmp_path, parameter, complaint):
    tune = {"policy": "sjf", "objective": {"minimise": "meanWait"}, "parameters": {"profile.x": parameter}}
    with pytest.raises(InvalidInput, match=complaint):
        load_scenario(written(tmp_path / "s.yaml", tune=tune))


def test_an_objective_is_one_measure(tmp_path):
    tune = {"policy": "sjf", "objective": {}, "parameters": {"profile.x": {"choices": [1]}}}
    with pytest.raises(InvalidInput, match="either minimise or maximise"):
        load_scenario(written(tmp_path / "s.yaml", tune=tune))
    with pytest.raises(InvalidInput, match="there is no policy 'x'"):
        load_scenario(
            written(tmp_path / "s.yaml", tune={**tune, "policy": "x", "objective": {"minimise": "meanWait"}})
        )


PRODUCTION = {"metadata": {"name": "production"}}


def test_shares_of_a_queue_that_is_not_declared_cause_a_warning():
    generated = {"name": "day", "generate": {"shares": {"prod": 0.3, "production": 0.7}}}
    (warning,) = unknown_queue_warnings(scenario(queues=[PRODUCTION], workloads=[generated]))
    assert warning.startswith("workloads.day.generate.shares: queue 'prod' is not declared in queues")
    assert warning.endswith("; known are production")


def test_teams_of_a_queue_that_is_not_declared_cause_a_warning():
    philly = {"name": "philly", "philly": {"trace": "trace.csv", "teams": {"producton": ["*"]}}}
    (warning,) = unknown_queue_warnings(scenario(queues=[PRODUCTION], workloads=[philly]))
    assert warning.startswith("workloads.philly.philly.teams: queue 'producton' is not declared")


def test_policy_for_a_queue_that_does_not_exist_causes_a_warning():
    generated = {"name": "day", "generate": {"shares": {"production": 1}}}
    policies = [{"name": "x", "queues": {"*": {"weight": 1}, "prodution": {"weight": 2}}}]
    made = scenario(queues=[PRODUCTION], workloads=[generated], policies=policies)
    (warning,) = unknown_queue_warnings(made)
    assert warning == "policies.x.queues: no queue is named 'prodution'; did you mean production?"


def test_scenario_without_queues_causes_no_warning():
    assert unknown_queue_warnings(scenario(queues=[])) == ()
