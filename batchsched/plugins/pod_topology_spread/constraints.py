"""Topology spread constraints of a pod: its own, or the profile's defaults for the pods of a workload."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Self

from pydantic import Field, model_validator

from batchsched.api.core.node import HOSTNAME_LABEL
from batchsched.api.core.pod import Pod, TopologySpreadConstraint
from batchsched.api.core.selector import LabelSelector
from batchsched.api.crd.base import StrictModel
from batchsched.framework.nodes.label_index import PodSelector
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.plugin_support.default_selectors import default_selectors

ZONE: Final = "topology.kubernetes.io/zone"
DO_NOT_SCHEDULE: Final = "DoNotSchedule"
SCHEDULE_ANYWAY: Final = "ScheduleAnyway"
HONOR: Final = "Honor"


class DefaultConstraint(StrictModel):
    """A topology spread constraint for pods that have none of their own.

    Its selector comes from the pod's Services and workload.
    """

    max_skew: int = Field(
        ge=1,
        description="Maximum difference between a domain's matching pods and those of the domain with the fewest.",
    )
    topology_key: str = Field(min_length=1, description="The node label; each of its values is a domain.")
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = Field(
        description="DoNotSchedule refuses the node; ScheduleAnyway only lowers its score."
    )
    min_domains: int | None = Field(
        default=None,
        ge=1,
        description="With fewer eligible domains than this, the global minimum counts as 0.",
    )
    node_affinity_policy: Literal["Honor", "Ignore"] | None = Field(
        default=None,
        description="Honor, the default: nodes that the pod's node affinity excludes do not count.",
    )
    node_taints_policy: Literal["Honor", "Ignore"] | None = Field(
        default=None, description="Honor: nodes with taints that the pod does not tolerate do not count."
    )


class PodTopologySpreadArgs(StrictModel):
    """Arguments of PodTopologySpread, as in kube-scheduler."""

    default_constraints: tuple[DefaultConstraint, ...] = Field(
        default=(), description="With defaultingType List: constraints for pods without their own."
    )
    defaulting_type: Literal["System", "List"] = Field(
        default="System",
        description="System: the built-in defaults of kube-scheduler. List: defaultConstraints.",
    )

    @model_validator(mode="after")
    def _defaults_agree(self) -> Self:
        if self.defaulting_type == "System" and self.default_constraints:
            raise ValueError("defaultConstraints: must be empty when defaultingType is System; say List")
        pairs = [(one.topology_key, one.when_unsatisfiable) for one in self.default_constraints]
        twice = sorted({key for key, action in pairs if pairs.count((key, action)) > 1})
        if twice:
            raise ValueError(
                f"defaultConstraints: {', '.join(twice)} is stated more than once; keep one of them"
            )
        return self

    def default_constraints_with_action(self, action: str) -> tuple[TopologySpreadConstraint, ...]:
        """Return the default topology spread constraints that have the given `whenUnsatisfiable`.

        They have no selectors.
        """
        system = self.defaulting_type == "System"
        own = (TopologySpreadConstraint(**one.model_dump()) for one in self.default_constraints)
        return tuple(one for one in (SYSTEM_DEFAULTS if system else own) if one.when_unsatisfiable == action)


SYSTEM_DEFAULTS: Final = (
    TopologySpreadConstraint(topology_key=HOSTNAME_LABEL, when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=3),
    TopologySpreadConstraint(topology_key=ZONE, when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=5),
)
"""Source: `systemDefaultConstraints` of kube-scheduler's podtopologyspread."""


@dataclass(frozen=True, slots=True, eq=False)
class SpreadConstraint:
    """A topology spread constraint in which unset fields have their default values.

    Args:
      selection: the pods that count, in the namespace of the constraint's pod.
      honor_affinity, honor_taints: nodes that the pod's affinity or tolerations exclude do not count.
    """

    max_skew: int
    topology_key: str
    selection: PodSelector
    min_domains: int
    honor_affinity: bool
    honor_taints: bool


def spread_constraints_with_action(
    pod: Pod, action: str, defaults: tuple[TopologySpreadConstraint, ...], table: NodeTable
) -> tuple[SpreadConstraint, ...]:
    """Return the topology spread constraints of a pod that have the given `whenUnsatisfiable`.

    If the pod has no constraints, `defaults` apply; they must have the same `whenUnsatisfiable`.

    Source: `filterTopologySpreadConstraints` and `buildDefaultConstraints` of kube-scheduler.
    """
    own = pod.spec.topology_spread_constraints
    if own:
        namespaces = frozenset({pod.namespace})
        return tuple(
            _constraint(raw, PodSelector(label_selectors_of_constraint(raw, pod.labels), namespaces))
            for raw in own
            if raw.when_unsatisfiable == action
        )
    selectors = default_selectors(pod, table) if defaults else ()
    if not selectors:
        return ()
    selection = PodSelector(selectors, frozenset({pod.namespace}))
    return (
        () if selection.selects_whole_namespaces else tuple(_constraint(one, selection) for one in defaults)
    )


def _constraint(raw: TopologySpreadConstraint, selection: PodSelector) -> SpreadConstraint:
    return SpreadConstraint(
        raw.max_skew,
        raw.topology_key,
        selection,
        1 if raw.min_domains is None else raw.min_domains,
        raw.node_affinity_policy in (None, HONOR),
        raw.node_taints_policy == HONOR,
    )


def label_selectors_of_constraint(
    raw: TopologySpreadConstraint, labels: Mapping[str, str]
) -> tuple[LabelSelector, ...] | None:
    """Return the label selectors that a pod must match so that a topology spread constraint counts the pod.

    They are the `labelSelector` of the constraint, and a selector that follows from its `matchLabelKeys`. The result
    None selects no pods.

    Source: `mergeLabelSetWithSelector` of kube-scheduler. With labels to match, a missing selector adds nothing.
    """
    own = () if raw.label_selector is None else (raw.label_selector,)
    merged = {key: labels[key] for key in raw.match_label_keys or () if key in labels}
    if merged:
        return (*own, LabelSelector(match_labels=merged))
    return own or None
