"""The differences between the releases of kube-scheduler that batchsched can follow.

All differences are in this table. Plugins read them as `nodes.table.release`; no module compares version numbers.

Source: kube-scheduler v1.36.3 and v1.37.2 with their default feature gates, and recorded answers of both.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from batchsched.api.core.requests import InPlaceResizeRequestRule

KubernetesVersion = Literal["1.36", "1.37"]


@dataclass(frozen=True, slots=True)
class DeviceRules:
    """The behavior of DynamicResources in one Kubernetes release, as far as it differs between releases.

    The defaults of the fields are the behavior in 1.36.

    Args:
      counters_by_pool_name: pools of different drivers with the same name share counters.
      counter_slices_reach_all_nodes: a slice with shared counters counts for every node, whatever nodes it states.
      compares_last_values: `distinctAttribute` compares a device only with the last one of each request.
      all_skips_used_capacity: the allocation mode All leaves out devices without enough capacity left; otherwise such a
        device makes the request fail.
      ignores_compatibility_groups: slices with compatibility groups are ignored, which makes their pool incomplete.
      reads_taint_rules: DeviceTaintRules add taints to devices.
      shortens_config_requests: configuration for all requests of a claim is stored without the names of the requests.
    """

    counters_by_pool_name: bool = True
    counter_slices_reach_all_nodes: bool = True
    compares_last_values: bool = True
    all_skips_used_capacity: bool = True
    ignores_compatibility_groups: bool = False
    reads_taint_rules: bool = False
    shortens_config_requests: bool = False


@dataclass(frozen=True, slots=True)
class KubernetesRelease:
    """The behavior of kube-scheduler in one Kubernetes release, as far as it differs between releases.

    The defaults of the fields are the behavior in 1.36.

    Args:
      earlier_plugins: pairs of default plugins; the first is called directly before the second. All other default
        plugins are called in the order of 1.37.
      node_name_narrows: the PreFilter of NodeName restricts a pod to the node that it names.
      counts_image_volumes: for ImageLocality, an image volume raises the size that scores 100, as a container does.
      replaces_namespace_selector: InterPodAffinity replaces the namespaceSelector of a pending pod's term by the
        namespaces that it selects. If false, a selector that matches an object without labels selects all namespaces.
      storage_scores: VolumeBinding's default `shape`, points of percent of capacity in use and score 0..10; () for no
        score.
      reads_required_drivers: NodeVolumeLimits refuses nodes without a CSI driver of the pod's volumes, if the CSIDriver
        sets `preventPodSchedulingIfMissing`.
      reports_no_claims: PostFilter of DynamicResources states a reason if it deallocates no ResourceClaim.
      reports_nomination: PostFilter of DefaultPreemption states the nominated node and the number of victims.
      resized_request_rule: how requests are computed for a pod that is resized in place.
      devices: the behavior of DynamicResources.
    """

    earlier_plugins: tuple[tuple[str, str], ...] = (("NodeUnschedulable", "NodeName"),)
    node_name_narrows: bool = False
    counts_image_volumes: bool = False
    replaces_namespace_selector: bool = False
    storage_scores: tuple[tuple[int, int], ...] = ()
    reads_required_drivers: bool = False
    reports_no_claims: bool = True
    reports_nomination: bool = False
    resized_request_rule: InPlaceResizeRequestRule = InPlaceResizeRequestRule.BY_CONTAINER
    devices: DeviceRules = DeviceRules()

    def sort_plugins(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names of default plugins in the order in which this Kubernetes release calls them."""
        ordered = list(names)
        for first, second in self.earlier_plugins:
            if first in ordered and second in ordered:
                ordered.remove(first)
                ordered.insert(ordered.index(second), first)
        return tuple(ordered)


DEFAULT_VERSION: Final[KubernetesVersion] = "1.37"

RELEASES: Final[dict[KubernetesVersion, KubernetesRelease]] = {
    "1.36": KubernetesRelease(),
    "1.37": KubernetesRelease(
        earlier_plugins=(),
        node_name_narrows=True,
        counts_image_volumes=True,
        replaces_namespace_selector=True,
        storage_scores=((0, 10), (100, 0)),
        reads_required_drivers=True,
        reports_no_claims=False,
        reports_nomination=True,
        resized_request_rule=InPlaceResizeRequestRule.BY_POD,
        devices=DeviceRules(
            counters_by_pool_name=False,
            counter_slices_reach_all_nodes=False,
            compares_last_values=False,
            all_skips_used_capacity=False,
            ignores_compatibility_groups=True,
            reads_taint_rules=True,
            shortens_config_requests=True,
        ),
    ),
}
"""Release by version. With the default feature gates of 1.37, the PreFilters of NodeUnschedulable and TaintToleration
have no effect, and DeferredPodScheduling and DRAFractionalCapacityRange are off; the latter needs
`--min-compatibility-version=1.37`.
"""

DEFAULT_RELEASE: Final = RELEASES[DEFAULT_VERSION]
