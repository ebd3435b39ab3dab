"""Gang identity: the key under which the scheduler knows a gang, whether it is a PodGroup or a single pod."""

from typing import Final

from batchsched.api.core.pod import POD_GROUP_LABEL, Pod

SINGLE_POD_PREFIX: Final = "pod/"
"""Prefix of the identity of a pod that belongs to no PodGroup and is a gang of one."""


def identity_of(pod: Pod) -> str:
    """Return the identity of the pod's gang: `namespace/podgroup`, or `pod/namespace/name` without a PodGroup."""
    name = pod.metadata.labels.get(POD_GROUP_LABEL) if pod.metadata.labels else None
    namespace = pod.metadata.namespace or "default"
    return f"{namespace}/{name}" if name else f"{SINGLE_POD_PREFIX}{namespace}/{pod.metadata.name}"


def is_single_pod(identity: str) -> bool:
    """Return whether the identity is that of a pod without a PodGroup."""
    return identity.startswith(SINGLE_POD_PREFIX)


def key_of(identity: str) -> str:
    """Return the `namespace/name` of the PodGroup or of the single pod."""
    return identity.removeprefix(SINGLE_POD_PREFIX)
