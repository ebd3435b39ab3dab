"""The kubelet's part: pods as they look once they are bound."""

from typing import Final

import msgspec

from batchsched.api.core.metadata import timestamp
from batchsched.api.core.pod import Pod, PodSpec, PodStatus

RUNNING: Final = "Running"


class Kubelet:
    """Starts pods on nodes. Specs of equal pods on one node stay one object, so that they are read once."""

    def __init__(self) -> None:
        self._specs: dict[tuple[int, str], tuple[PodSpec, PodSpec]] = {}
        self._bare: dict[int, tuple[PodSpec, PodSpec]] = {}
        self._status: tuple[int, PodStatus] = (-1, PodStatus())

    def start(self, pod: Pod, node: str, now: int) -> Pod:
        """Return the pod as it runs on a node since `now`, seconds since 1970."""
        key = (id(pod.spec), node)
        known = self._specs.get(key)
        if known is None:
            known = self._specs[key] = (pod.spec, msgspec.structs.replace(pod.spec, node_name=node))
            self._bare[id(known[1])] = (known[1], pod.spec)
        if self._status[0] != now:
            self._status = (now, PodStatus(phase=RUNNING, start_time=timestamp(now)))
        return Pod(metadata=pod.metadata, spec=known[1], status=self._status[1])

    def anew(self, pod: Pod) -> Pod:
        """Return the pod that its owner makes in place of one that was killed: it waits."""
        spec = self._bare.get(id(pod.spec))
        if spec is None:
            spec = (pod.spec, msgspec.structs.replace(pod.spec, node_name=""))
            self._bare[id(pod.spec)] = spec
        return Pod(metadata=pod.metadata, spec=spec[1])
