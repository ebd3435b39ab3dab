"""The kubelet of the simulated cluster: pods after they were bound."""

from typing import Final

import msgspec

from batchsched.api.core.metadata import timestamp
from batchsched.api.core.pod import Pod, PodSpec, PodStatus

RUNNING: Final = "Running"


class Kubelet:
    """Starts pods on nodes. Equal pods on one node share one spec object, so that its requests are computed once."""

    def __init__(self) -> None:
        self._specs: dict[tuple[int, str], tuple[PodSpec, PodSpec]] = {}
        self._bare: dict[int, tuple[PodSpec, PodSpec]] = {}
        self._status: tuple[int, PodStatus] = (-1, PodStatus())

    def start(self, pod: Pod, node: str, now: int) -> Pod:
        """Return the pod as it runs on a node since `now`, in seconds since 1970."""
        key = (id(pod.spec), node)
        cached = self._specs.get(key)
        if cached is None:
            cached = self._specs[key] = (pod.spec, msgspec.structs.replace(pod.spec, node_name=node))
            self._bare[id(cached[1])] = (cached[1], pod.spec)
        if self._status[0] != now:
            self._status = (now, PodStatus(phase=RUNNING, start_time=timestamp(now)))
        return Pod(metadata=pod.metadata, spec=cached[1], status=self._status[1])

    def recreate(self, pod: Pod) -> Pod:
        """Return the pending pod that the owner creates in place of a killed one."""
        spec = self._bare.get(id(pod.spec))
        if spec is None:
            spec = (pod.spec, msgspec.structs.replace(pod.spec, node_name=""))
            self._bare[id(pod.spec)] = spec
        return Pod(metadata=pod.metadata, spec=spec[1])
