"""Which pods a disruption budget pays for, and what an eviction leaves of it."""

import msgspec
import pytest

from batchsched.api.core.cluster_objects import PodDisruptionBudget
from batchsched.api.core.pod import Pod


def budget(allowed=1, disrupted=None, **spec):
    return msgspec.convert(
        {
            "metadata": {"name": "b", "namespace": "team"},
            "spec": spec or {"selector": {"matchLabels": {"app": "db"}}},
            "status": {"disruptionsAllowed": allowed, "disruptedPods": disrupted},
        },
        PodDisruptionBudget,
    )


def pod(name="p", namespace="team", **labels):
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace, "labels": labels}}, Pod)


def test_a_budget_applies_to_the_selected_pods_of_its_namespace():
    assert budget().counts_eviction_of(pod(app="db"))
    assert not budget().counts_eviction_of(pod(app="web"))
    assert not budget().counts_eviction_of(pod(namespace="other", app="db"))


@pytest.mark.parametrize("spec", [{"selector": {}}, {"selector": None}], ids=["empty", "none"])
def test_an_empty_or_missing_selector_protects_no_pod(spec):
    assert not budget(**spec).counts_eviction_of(pod(app="db"))


def test_an_eviction_is_charged_once():
    one = pod(app="db")
    after = budget(allowed=1).with_eviction_counted(one)
    assert after.status.disruptions_allowed == 0
    assert after.with_eviction_counted(one) is after
    assert after.with_eviction_counted(pod("q", app="db")).status.disruptions_allowed == -1
    assert budget().with_eviction_counted(pod(app="web")) == budget()
