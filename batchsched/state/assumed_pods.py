"""Assumed pods: pods that a session placed and that no watch event has shown bound."""

from dataclasses import dataclass
from typing import Final

import msgspec

from batchsched.api.core.pod import Pod, PodSpec

MAX_CACHED_SPECS: Final = 65_536


@dataclass(frozen=True, slots=True)
class Assumption:
    """The node of an assumed pod, and the times of the assumption.

    Args:
      node: The name of the node.
      since: Seconds since 1970 at which the pod was assumed.
      deadline: Seconds since 1970 at which an unconfirmed binding is overdue; None before the binding has finished,
        and if bindings are never overdue.
    """

    node: str
    since: float
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class AssumedPod:
    """An assumption with the `namespace/name` of its pod."""

    pod: str
    assumption: Assumption


class Placements:
    """Makes bound versions of pods. Equal pods on one node share a spec, and so the results for it."""

    def __init__(self) -> None:
        self._specs: dict[tuple[int, str], tuple[PodSpec, PodSpec]] = {}

    def place(self, pod: Pod, node: str) -> Pod:
        """Return the pod with a node."""
        key = (id(pod.spec), node)
        specs = self._specs.get(key)
        if specs is None:
            if len(self._specs) >= MAX_CACHED_SPECS:
                self._specs.clear()
            placed = msgspec.structs.replace(pod.spec, node_name=node)
            # The entry holds the first spec, so that no other spec can get its id.
            specs = self._specs[key] = (pod.spec, placed)
        return Pod(metadata=pod.metadata, spec=specs[1], status=pod.status)
