"""The gauges that the collector reads at each scrape."""

from dataclasses import dataclass
from typing import Any

from batchsched.kube.connection import ApiResource
from batchsched.observability.collector import MetricsCollector
from batchsched.observability.metrics import Metrics
from batchsched.state.cluster_state import ClusterState

NOW = 10_000.0


@dataclass(eq=False)
class Watch:
    """What the collector reads of a reflector."""

    resource: ApiResource
    last_event_at: float | None = NOW
    is_missing: bool = False
    forbidden: bool = False
    lists: int = 1
    events: int = 1
    failures: int = 0


def watch(api_version: str, kind: str, silence: float) -> Watch:
    return Watch(
        ApiResource(api_version, f"{kind.lower()}s", kind, namespaced=True), last_event_at=NOW - silence
    )


def silence(collector: MetricsCollector) -> dict[str, float]:
    """The seconds of silence by resource, as a scrape shows them."""
    collector.update_gauges([], NOW)
    (family,) = collector.metrics.silence.collect()
    return {sample.labels["resource"]: sample.value for sample in family.samples}


def test_silent_watch_is_visible_although_a_watch_of_the_same_name_is_not_silent():
    reflectors: Any = [
        watch("scheduling.batchsched.dev/v1alpha1", "PodGroup", 900),
        watch("scheduling.k8s.io/v1beta1", "PodGroup", 700),
        watch("scheduling.k8s.io/v1alpha3", "PodGroup", 5),
        watch("v1", "Pod", 3),
    ]
    assert silence(MetricsCollector(Metrics(), ClusterState(), reflectors)) == {
        "podgroups.scheduling.batchsched.dev": 900,
        "podgroups.scheduling.k8s.io": 700,
        "pods": 3,
    }


def test_kind_that_is_not_installed_any_more_has_no_silence():
    removed = watch("ray.io/v1", "RayCluster", 400)
    reflectors: Any = [removed]
    collector = MetricsCollector(Metrics(), ClusterState(), reflectors)
    assert silence(collector) == {"rayclusters.ray.io": 400}
    removed.is_missing = True
    assert silence(collector) == {}
    removed.is_missing = False
    assert silence(collector) == {"rayclusters.ray.io": 400}
