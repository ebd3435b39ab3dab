"""Extenders as kube-scheduler's users write them: of one file for all profiles, or of one profile."""

import pytest

from batchsched.config.extenders import Extender, parse_duration, resources_ignored_by_scheduler
from batchsched.config.load import load_configuration
from batchsched.config.schema import Profile

KUBE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: one}, {schedulerName: two}]
extenders:
- urlPrefix: https://gpu.example/v1
  filterVerb: filter
  prioritizeVerb: prioritize
  weight: 3
  enableHTTPS: true
  tlsConfig: {keyData: c2VjcmV0}
  httpTimeout: 1500ms
  managedResources:
  - {name: example.com/gpu-share, ignoredByScheduler: true}
  - {name: example.com/other}
  ignorable: true
"""


@pytest.mark.parametrize(
    "text, seconds",
    [("15s", 15.0), ("1m30s", 90.0), ("100ms", 0.1), ("1.5h", 5400.0), ("0", 0.0), ("-2s", -2.0)],
)
def test_durations_are_read_as_go_writes_them(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


def test_extenders_of_a_kube_scheduler_file_are_every_profiles():
    one, two = load_configuration(KUBE).profiles
    assert one.extenders == two.extenders
    (extender,) = one.extenders
    assert (extender.url_prefix, extender.weight, extender.ignorable) == ("https://gpu.example/v1", 3, True)
    assert extender.timeout_seconds == 1.5


def test_resources_ignored_for_extenders_replace_the_ignored_resources_of_the_plugin():
    (profile, _) = load_configuration(KUBE).profiles
    assert resources_ignored_by_scheduler(profile.extenders) == ["example.com/gpu-share"]
    own = Profile.model_validate(
        {
            "extenders": profile.model_dump(mode="json", by_alias=True)["extenders"],
            "pluginConfig": [
                {"name": "NodeResourcesFit", "args": {"ignoredResources": ["a/b"], "scoringStrategy": {}}}
            ],
        }
    )
    assert own.plugin_arguments("NodeResourcesFit") == {
        "ignoredResources": ["example.com/gpu-share"],
        "scoringStrategy": {},
    }
    assert own.plugin_arguments("ImageLocality") == {}


def test_dump_of_a_profile_contains_no_tls_key():
    profile = load_configuration(KUBE).profiles[0]
    assert profile.extenders[0].tls_config.key_data == "c2VjcmV0"
    assert "c2VjcmV0" not in profile.model_dump_json(by_alias=True) + repr(profile)


def test_a_timeout_of_zero_is_five_seconds():
    assert Extender.model_validate({"urlPrefix": "u", "httpTimeout": "0s"}).timeout_seconds == 5.0
