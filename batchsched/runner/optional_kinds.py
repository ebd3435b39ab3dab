"""What may be scheduled without: kinds that we may not read, and what becomes of pods that have to do with them.

Whatever is not here has to be listed before the first session. Nodes and pods are what is counted; without namespaces,
budgets, CSINodes or attachments a hard constraint would be broken unseen, without priority classes and our own kinds
somebody would be preferred who is not to be. What is here leaves pods waiting at worst: a claim that nobody knows is
refused, and so is a PodGroup, and a pod whose owner is not known belongs to a PodGroup that nobody has made.
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
"""By field of a Snapshot."""
WITHOUT_OWNERS: Final = "pods that they own wait"
WITHOUT_GROUPS: Final = "pods that name one wait"
