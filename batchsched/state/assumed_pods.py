"""Assumptions: pods that a decision placed, and that the API does not show bound yet."""

from dataclasses import dataclass
from typing import Final

import msgspec

from batchsched.api.core.pod import Pod, PodSpec

MOST_SPECS: Final = 65_536


@dataclass(frozen=True, slots=True)
class Assumption:
    """Where a pod is assumed to be.

    Args:
      node: the node.
      since: seconds since 1970 at which it was assumed.
      deadline: seconds since 1970 from which an unconfirmed binding is given up; None before the binding has
        finished, and where it never is.
    """

    node: str
    since: float
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class AssumedPod:
    """An assumption and the `namespace/name` of its pod."""

    pod: str
    assumption: Assumption


class Placements:
    """Makes the bound versions of pods; equal pods on one node share a spec, so that it is worked out once."""

    def __init__(self) -> None:
        self._specs: dict[tuple[int, str], tuple[PodSpec, PodSpec]] = {}

    def place(self, pod: Pod, node: str) -> Pod:
        """Return a pod as it is when bound to a node."""
        key = (id(pod.spec), node)
        known = self._specs.get(key)
        if known is None:
            if len(self._specs) >= MOST_SPECS:
                self._specs.clear()
            placed = msgspec.structs.replace(pod.spec, node_name=node)
            # The first spec is kept, so that its identity stays its own.
            known = self._specs[key] = (pod.spec, placed)
        return Pod(metadata=pod.metadata, spec=known[1], status=pod.status)
