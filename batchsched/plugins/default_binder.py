"""DefaultBinder: writes the binding of a pod."""

from typing import ClassVar

from typing_extensions import override

from batchsched.api.core.pod import Pod
from batchsched.framework.interface import BindingHandle, BindPlugin, SignaturePlugin
from batchsched.framework.status import SUCCESS, Status
from batchsched.ports.cluster import Binding


class DefaultBinder(SignaturePlugin, BindPlugin):
    """Binds every pod that no earlier Bind plugin has bound, through the API server.

    An error of the API server ends the binding cycle.

    Source: kube-scheduler's plugins/defaultbinder.
    """

    name: ClassVar[str] = "DefaultBinder"

    @override
    def signature(self, pod: Pod) -> None:
        """Return None, the same signature for all pods, because the plugin does not read a pod's spec."""
        return

    @override
    async def bind(self, pod: Pod, node: str, cycle: BindingHandle) -> Status:
        await cycle.binder.bind(Binding.from_pod_and_node(pod, node))
        return SUCCESS
