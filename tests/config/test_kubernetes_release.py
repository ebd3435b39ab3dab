"""A profile follows one release of kube-scheduler, in all that differs between releases."""

import pytest
from pydantic import ValidationError

from batchsched.config.kubernetes_release import DEFAULT_RELEASE, RELEASES
from batchsched.config.plugins import DEFAULT_PLUGINS
from batchsched.config.schema import Profile
from batchsched.framework.runtime.pipeline import plugin_names
from batchsched.framework.runtime.registry import standard_registry


def test_a_profile_follows_1_37_by_default():
    assert Profile().kubernetes_release is RELEASES["1.37"] is DEFAULT_RELEASE


def test_a_profile_follows_the_release_that_it_states():
    profile = Profile.model_validate({"kubernetesVersion": "1.36"})
    assert profile.kubernetes_release is RELEASES["1.36"]
    assert standard_registry().create_pipeline(profile).release is RELEASES["1.36"]


@pytest.mark.parametrize("version", ["1.35", "1.37.2", 1.37])
def test_other_versions_are_refused(version):
    with pytest.raises(ValidationError, match=r"1\.36"):
        Profile.model_validate({"kubernetesVersion": version})


@pytest.mark.parametrize(
    "version, names",
    [("1.36", ("NodeUnschedulable", "NodeName")), ("1.37", ("NodeName", "NodeUnschedulable"))],
)
def test_node_name_comes_before_node_unschedulable_since_1_37(version, names):
    ours = plugin_names(standard_registry().create_pipeline(Profile(kubernetes_version=version)).plugins)
    assert ours[2:5] == (*names, "TaintToleration")
    assert sorted(ours) == sorted(DEFAULT_PLUGINS)


def test_a_release_sorts_only_plugins_that_are_enabled():
    assert RELEASES["1.36"].sort_plugins(["NodeName", "NodePorts"]) == ("NodeName", "NodePorts")
    assert RELEASES["1.37"].sort_plugins(DEFAULT_PLUGINS) == DEFAULT_PLUGINS
