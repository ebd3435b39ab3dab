"""Topologies of Kueue (`kueue.x-k8s.io`) and KAI-Scheduler (`kai.scheduler`), and their conversion to a Topology."""

from typing import Final

from batchsched.api.core.metadata import KubernetesObject, KubernetesValue
from batchsched.api.crd.topology import Topology
from batchsched.api.external.pod_group import SOURCE, SOURCE_UID, without_none
from batchsched.api.snapshot import ObjectKind


class ExternalTopologyLevel(KubernetesValue, frozen=True, gc=False):
    """A level of a Kueue or KAI-Scheduler Topology: nodes with the same value of a label form one domain."""

    node_label: str = ""


class ExternalTopologySpec(KubernetesValue, frozen=True, gc=False):
    """The spec of a Topology of Kueue or KAI-Scheduler: its levels, widest first."""

    levels: tuple[ExternalTopologyLevel, ...] = ()


class ExternalTopology(KubernetesObject, frozen=True, gc=False):
    """The Topology object of Kueue or KAI-Scheduler. Both have the same fields."""

    spec: ExternalTopologySpec = ExternalTopologySpec()


class KueueTopology(ExternalTopology, frozen=True, gc=False):
    """The Topology object of Kueue. Source: `TopologySpec` of kueue.x-k8s.io/v1beta2."""


class KaiSchedulerTopology(ExternalTopology, frozen=True, gc=False):
    """The Topology object of KAI-Scheduler. Source: `TopologySpec` of kai.scheduler/v1alpha1."""


EXTERNAL_TOPOLOGY_KINDS: Final = (
    ObjectKind("Topology", "kueue.x-k8s.io/v1beta2", KueueTopology, "topologies"),
    ObjectKind("Topology", "kai.scheduler/v1alpha1", KaiSchedulerTopology, "topologies"),
)
"""External kinds in order of precedence. A batchsched Topology of the same name takes precedence over all of them."""
_VERSIONS: Final = {kind.type: kind.api_version for kind in EXTERNAL_TOPOLOGY_KINDS}


def convert_topology(external: ExternalTopology) -> Topology:
    """Convert a Topology of Kueue or KAI-Scheduler to a batchsched Topology.

    The node label of a level is also its name.

    Raises:
      pydantic.ValidationError: the external Topology has values that a batchsched Topology does not allow.
    """
    meta = external.metadata
    annotations = without_none(**{SOURCE: _VERSIONS[type(external)], SOURCE_UID: meta.uid or None})
    levels = [{"name": level.node_label, "nodeLabel": level.node_label} for level in external.spec.levels]
    return Topology.model_validate(
        {
            "metadata": without_none(
                name=meta.name,
                labels=meta.labels,
                annotations=annotations,
                creationTimestamp=meta.creation_timestamp,
                generation=meta.generation,
            ),
            "spec": {"levels": levels},
        }
    )
