"""Which plugin is asked at which point: the defaults, multiPoint over them, and a point over both."""

from typing import Any

import pytest

from batchsched.config.schema import Profile
from batchsched.errors import InvalidInput
from batchsched.framework.runtime.pipeline import Pipeline, plugin_names
from batchsched.framework.runtime.registry import Registry


class Judge:
    name = "Judge"

    def filter(self, pod, nodes, state):
        raise NotImplementedError

    def constrain(self, batch, nodes):
        raise NotImplementedError


class Rank:
    name = "Rank"

    def score(self, pod, nodes, state):
        raise NotImplementedError


class JudgeAndRank:
    name = "JudgeAndRank"

    def prefilter(self, pod, nodes, state):
        raise NotImplementedError

    def filter(self, pod, nodes, state):
        raise NotImplementedError

    def score(self, pod, nodes, state):
        raise NotImplementedError


class RankToo:
    name = "RankToo"

    def score(self, pod, nodes, state):
        raise NotImplementedError


class Sort:
    name = "Sort"

    def sort_key(self, pod, priority, queued):
        raise NotImplementedError


class SortToo:
    name = "SortToo"

    def sort_key(self, pod, priority, queued):
        raise NotImplementedError


DEFAULTS = ("Sort", "Judge", "JudgeAndRank", "Rank")
REGISTRY = Registry(
    (Judge, Rank, JudgeAndRank, RankToo, Sort, SortToo), DEFAULTS, {"JudgeAndRank": 3, "Rank": 2}
)


def pipeline(**plugins: Any) -> Pipeline:
    return REGISTRY.create_pipeline(Profile.model_validate({"plugins": plugins}))


def on(*stated: Any) -> dict[str, Any]:
    """Enabled: names, or (name, weight)."""
    pairs = [one if isinstance(one, tuple) else (one, None) for one in stated]
    return {"enabled": [{"name": name, "weight": weight} for name, weight in pairs]}


def off(*stated: str) -> dict[str, Any]:
    return {"disabled": [{"name": name} for name in stated]}


def test_every_point_has_the_default_plugins_that_implement_it():
    made = pipeline()
    assert plugin_names(made.filters) == ("Judge", "JudgeAndRank")
    assert plugin_names(made.scores) == ("JudgeAndRank", "Rank")
    assert plugin_names(made.queue_sorts) == ("Sort",)
    assert (made.weights["JudgeAndRank"], made.weights["Rank"]) == (3, 2)


def test_a_default_that_multi_point_enables_again_keeps_its_place_and_takes_the_weight():
    made = pipeline(multiPoint=on(("RankToo", 4), ("JudgeAndRank", 9)))
    assert plugin_names(made.scores) == ("JudgeAndRank", "Rank", "RankToo")
    assert (made.weights["JudgeAndRank"], made.weights["RankToo"]) == (9, 4)


def test_without_a_weight_a_default_that_is_enabled_again_counts_once_as_in_kube_scheduler():
    assert pipeline(multiPoint=on("JudgeAndRank")).weights["JudgeAndRank"] == 1
    assert pipeline(score=on("JudgeAndRank")).weights["JudgeAndRank"] == 1
    assert pipeline(multiPoint=on(("JudgeAndRank", 0))).weights["JudgeAndRank"] == 1
    assert pipeline(enabled=[{"name": "JudgeAndRank"}]).weights["JudgeAndRank"] == 3


def test_multi_point_disables_at_every_point_and_star_keeps_what_it_enables():
    assert plugin_names(pipeline(multiPoint=off("JudgeAndRank")).filters) == ("Judge",)
    made = pipeline(multiPoint={**off("*"), **on("Rank")})
    assert (plugin_names(made.plugins), plugin_names(made.filters), plugin_names(made.scores)) == (
        ("Rank",),
        (),
        ("Rank",),
    )


def test_a_plugin_may_be_off_at_one_point_and_on_at_the_others():
    made = pipeline(score=off("JudgeAndRank"))
    assert plugin_names(made.scores) == ("Rank",)
    assert plugin_names(made.filters) == ("Judge", "JudgeAndRank")
    assert plugin_names(made.prefilters) == ("JudgeAndRank",)
    assert plugin_names(pipeline(filter=off("*")).filters) == ()


def test_a_point_overrides_an_explicit_multi_point():
    made = pipeline(multiPoint=on(("Rank", 8)), score=on(("Rank", 5)))
    assert made.weights["Rank"] == 5
    assert plugin_names(pipeline(multiPoint=on("RankToo"), score=off("RankToo")).scores) == (
        "JudgeAndRank",
        "Rank",
    )


def test_plugins_enabled_again_at_a_point_come_first_and_new_ones_last():
    made = pipeline(score=on("RankToo", ("Rank", 6)))
    assert plugin_names(made.scores) == ("Rank", "JudgeAndRank", "RankToo")


def test_plugin_disabled_and_enabled_again_at_a_point_comes_last_with_its_new_weight():
    made = pipeline(score={**off("JudgeAndRank"), **on(("JudgeAndRank", 10))})
    assert plugin_names(made.scores) == ("Rank", "JudgeAndRank")
    assert made.weights["JudgeAndRank"] == 10


def test_star_at_a_point_leaves_only_what_the_point_enables_in_its_order():
    made = pipeline(score={**off("*"), **on(("RankToo", 2), ("JudgeAndRank", 7))})
    assert plugin_names(made.scores) == ("RankToo", "JudgeAndRank")
    assert plugin_names(made.filters) == ("Judge", "JudgeAndRank")


def test_a_plugin_enabled_at_one_point_only_runs_there_only():
    made = pipeline(multiPoint=off("JudgeAndRank"), filter=on("JudgeAndRank"))
    assert (plugin_names(made.filters), plugin_names(made.scores)) == (("Judge", "JudgeAndRank"), ("Rank",))
    assert "JudgeAndRank" in plugin_names(made.plugins)


def test_a_plugin_whose_filter_is_off_adds_no_rows():
    assert plugin_names(pipeline().constrains) == ("Judge",)
    assert pipeline(filter=off("Judge")).constrains == ()


def test_a_plugin_enabled_at_a_point_that_it_does_not_implement_is_refused():
    with pytest.raises(InvalidInput, match="plugin Rank is not asked at this point") as caught:
        pipeline(preFilter=on("Rank"))
    assert caught.value.field == "profiles[].plugins.preFilter.enabled"


def test_two_queue_sort_plugins_are_refused_and_one_may_replace_the_other():
    with pytest.raises(InvalidInput, match="Sort and SortToo all sort the queue"):
        pipeline(multiPoint=on("SortToo"))
    replaced = pipeline(queueSort={**off("*"), **on("SortToo")})
    assert plugin_names(replaced.queue_sorts) == ("SortToo",)


def test_unavailable_plugins_of_kube_scheduler_are_ignored_and_reported():
    stated = {
        "plugins": {"multiPoint": on("EBSLimits"), "score": off("VolumeBinding")},
        "pluginConfig": [{"name": "PodGroupPodsCount"}],
    }
    profile = Profile.model_validate(stated)
    assert plugin_names(REGISTRY.create_pipeline(profile).plugins) == DEFAULTS
    assert REGISTRY.ignored_plugin_names(profile) == ("EBSLimits", "PodGroupPodsCount")


def test_an_unknown_name_is_refused_with_its_field():
    with pytest.raises(InvalidInput, match="there is no plugin 'Rnak'") as caught:
        pipeline(score=off("*", "Rnak"))
    assert caught.value.field == "profiles[].plugins.score.disabled[1].name"
