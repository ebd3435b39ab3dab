"""Optional kinds: the kinds that the scheduler can work without if access is denied, and the consequences.

All other kinds must be listed before the first session. Nodes and pods are counted. Without namespaces, budgets,
CSINodes or attachments, the scheduler would break hard constraints. Without priority classes, queues or topologies it
would prefer the wrong gangs. A missing optional kind leaves pods pending at worst: an unknown claim or PodGroup is
refused, and a pod with an unknown owner belongs to a PodGroup that does not exist.
"""

from typing import Final

_CLAIMS: Final = "pods with claims that depend on them wait"
_SPREAD: Final = "their pods are spread by their own constraints only, not by the default ones"
WITHOUT: Final = {
    "persistent_volumes": _CLAIMS,
    "persistent_volume_claims": _CLAIMS,
    "storage_classes": _CLAIMS,
    "csi_drivers": "volumes are provisioned without a look at the capacity that is left",
    "csi_storage_capacities": _CLAIMS,
    "services": _SPREAD,
    "replication_controllers": _SPREAD,
    "replica_sets": _SPREAD,
    "stateful_sets": _SPREAD,
}
"""The consequence of a missing kind, by its field of Snapshot."""
WITHOUT_OWNERS: Final = "pods that they own wait"
WITHOUT_GROUPS: Final = "pods that name one wait"
