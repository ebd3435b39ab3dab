"""NodeOwner: nodes that a team lent to the cluster are used only for the pods of this team.

A plugin for one pod and one node at a time: the base classes build the arrays. Such a plugin is slower, which seldom
matters if its `placement_effect` is `NONE`.
"""

from collections.abc import Hashable
from typing import ClassVar, Final

from typing_extensions import override

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.framework.per_node import PerNodeFilter, PerNodeScore
from batchsched.framework.status import SUCCESS, Code, Status
from batchsched.framework.traits import PlacementEffect, PluginTraits

OWNER: Final = "example.com/owner"
FOREIGN: Final = Status(Code.UNRESOLVABLE, ("node(s) belonged to another team",))


class NodeOwner(PerNodeFilter, PerNodeScore):
    """Compares the label `example.com/owner` with the pod's namespace."""

    name: ClassVar[str] = "NodeOwner"
    traits: ClassVar[PluginTraits] = PluginTraits(placement_effect=PlacementEffect.NONE)

    def signature(self, pod: Pod) -> Hashable:
        """Return None: the plugin reads nothing of the spec, and pods of different namespaces are never one class."""
        return None

    @override
    def filter_node(self, pod: Pod, node: Node) -> Status:
        return SUCCESS if node.labels.get(OWNER, pod.namespace) == pod.namespace else FOREIGN

    @override
    def score_node(self, pod: Pod, node: Node) -> int:
        return 100 if node.labels.get(OWNER) == pod.namespace else 0
