"""The extension points in the order of their calls, one protocol each.

A plugin is a class with a `name` and the methods of its extension points. It needs no base class; a method with the
name of an extension point makes the pipeline call it. A plugin with arguments has a pydantic model `Args`. Arrays
have one entry for each node of the view that a method gets.

Each protocol states when it is called and what its answers cause. Plugins must not keep their arguments after a call,
except values in the cycle state.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from batchsched.api.core.cluster_objects import PodDisruptionBudget
from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot
from batchsched.framework.constrain import CandidateSet, Row
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.events import ClusterEventWithHint
from batchsched.framework.filter_result import FilterResult
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.pod_class import PodClass
from batchsched.framework.status import (
    BoolArray,
    IndexArray,
    IntArray,
    PermitAnswer,
    PostFilterAnswer,
    PreFilterAnswer,
    Status,
    Verdict,
)
from batchsched.ports.cluster import Binder


class Plugin(Protocol):
    """The attributes of every plugin. `traits` (see `framework.traits`) and `Args` (a pydantic model) are optional."""

    name: ClassVar[str]


@runtime_checkable
class SignaturePlugin(Protocol):
    """Declares what the plugin reads of a pod. Pods with equal signatures from all plugins form a class.

    If an enabled plugin has no signature, the whole spec and all labels count.
    """

    def signature(self, pod: Pod) -> Hashable:
        """Return what the plugin reads of a pod's spec, hashable.

        The session adds the namespace and the labels that selectors read, so that no class spans two namespaces.
        """


@runtime_checkable
class PodLabelKeysPlugin(Protocol):
    """Declares which labels a pod's selectors read. Other labels do not separate pods into classes."""

    def label_keys(self, pod: Pod) -> frozenset[str]:
        """Return the keys of the labels, on any pod, that selectors of this pod read."""


@runtime_checkable
class SnapshotLabelsPlugin(Protocol):
    """Declares which pod labels are read because of other objects, such as the selectors of Services."""

    def snapshot_label_keys(self, snapshot: Snapshot) -> frozenset[str]:
        """Return the keys of the labels, on any pod, that selectors of the snapshot's objects read."""


@runtime_checkable
class EnqueueExtensionsPlugin(Protocol):
    """A plugin that registers the events that may help a pod it refused. Without it, every event counts."""

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the events with their hints; an empty sequence if no event can help."""


@runtime_checkable
class PreEnqueuePlugin(Protocol):
    """Called before a pod enters the scheduling queue. A refused pod stays outside and uses no resources.

    With the trait `preenqueue_reads_spec_only` it is called for the first of the pods that share a spec.
    """

    def preenqueue(self, pod: Pod) -> Status:
        """Return Success if the pod may be queued."""


@runtime_checkable
class QueueSortPlugin(Protocol):
    """Orders the pods of a gang, and the gangs if no queue policy does. A profile has exactly one."""

    def key(self, pod: Pod, priority: int, queued: float) -> Any:
        """Return a sort key; the smallest comes first. `queued` is in seconds since 1970."""


@runtime_checkable
class PreFilterPlugin(Protocol):
    """Called once for each class, before its Filters. It may refuse all nodes, restrict them, or prepare the Filter."""

    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        """Prepare the Filter. Skip omits the plugin's Filter for this class."""


@runtime_checkable
class PreFilterExtensionsPlugin(Protocol):
    """Updates a PreFilter's state when pods are added to nodes or removed: placed pods, nominated pods, and victims.

    State values that these methods change must have `clone()`, so that a dry run works on a copy.
    """

    def add_pod(self, pod: PodClass, added: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        """Update the state after a pod was added to a node."""

    def remove_pod(self, pod: PodClass, removed: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        """Update the state after a pod was removed from a node."""


@runtime_checkable
class FilterPlugin(Protocol):
    """Judges nodes. A node's reason is that of the first plugin that refuses it."""

    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        """Return which nodes of the view the plugin refuses, and why. It must have no side effects."""


@runtime_checkable
class BulkFilterPlugin(Protocol):
    """A Filter that can judge several equal pods at once. Without it, `filter` is called for each pod."""

    def admits(self, pod: PodClass, table: NodeTable, nodes: IndexArray, counts: IndexArray) -> bool:
        """Return True if counts[i] of the pods may be placed on nodes[i], for all i together.

        A node is in `nodes` once. Return True only if `filter`, called before each of these pods with the earlier
        ones in place, would refuse none of them. The method may be called without a PreFilter before it.
        """


@runtime_checkable
class IgnoredResourcesPlugin(Protocol):
    """A Filter that checks capacity, but not that of all resources."""

    def ignores_resource(self, resource: str) -> bool:
        """Return True if the Filter does not check the capacity of a resource. The solver then ignores it, too."""


class NodeDryRun(Protocol):
    """A dry run on one node: pods are removed and added, then the Filters are called. The exit undoes all changes."""

    def __enter__(self) -> "NodeDryRun":
        """Begin the dry run."""

    def __exit__(self, *_: object) -> None:
        """Undo all changes."""

    def add(self, pod: Pod) -> None:
        """Add a pod to the node."""

    def remove(self, pod: Pod) -> None:
        """Remove a pod from the node."""

    def refusal(self) -> Status:
        """Call all Filters about the changed node, with and without nominated pods; Success if the pod fits."""


class MultiNodeDryRun(Protocol):
    """A dry run on several nodes at once, with one row for each. It works on copies, so nothing needs to be undone."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """The node of each row."""

    def add(self, rows: IndexArray, pods: Sequence[Pod]) -> None:
        """Add pods[i] to the node of rows[i]."""

    def remove(self, rows: IndexArray, pods: Sequence[Pod]) -> None:
        """Remove pods[i] from the node of rows[i]."""

    def refusals(self) -> list[Status]:
        """Call all Filters about each row; Success for rows on which the pod fits."""

    def fits(self, rows: IndexArray) -> BoolArray:
        """[k] Return which of these rows still fit. All of them fitted before the last change."""


Leaving = tuple[tuple[Pod, ...], int]
"""Victims on a node, the most important first, and the number of disruption budgets that their eviction violates."""


class PostFilterHandle(Protocol):
    """What a PostFilter plugin may read and simulate."""

    @property
    def table(self) -> NodeTable:
        """The nodes and the pods on them."""

    @property
    def budgets(self) -> Sequence[PodDisruptionBudget]:
        """The disruption budgets, less the evictions of this session."""

    def priority_of(self, pod: Pod) -> int:
        """Return a pod's resolved priority."""

    def lower_on(self, node: int) -> Sequence[Pod]:
        """Return the pods on a node that may be evicted: they have a lower priority and are not protected."""

    def trial(self, node: int) -> NodeDryRun:
        """Start a dry run on one node."""

    def trials(self, nodes: Sequence[int]) -> MultiNodeDryRun:
        """Start a dry run on those of some nodes that one dry run can cover. The others need `trial`."""

    def agreed(self, victims: Mapping[str, Leaving]) -> Mapping[str, Leaving]:
        """Call the extenders about victims by node name; return what they accept, in the given order."""


@runtime_checkable
class PostFilterPlugin(Protocol):
    """Called if no node is feasible. It may nominate a node and name victims. The first Success ends the chain."""

    def postfilter(self, pod: PodClass, scan: FilterResult, handle: PostFilterHandle) -> PostFilterAnswer:
        """Search for a node; `scan` has the reason of each refused node, and the state of the cycle."""


@runtime_checkable
class ConstrainPlugin(Protocol):
    """Adds rows to the solver's problem. It is called once in a session, and not at all if the solver is off."""

    def constrain(self, batch: CandidateSet, nodes: Nodes) -> Sequence[Row]:
        """Return valid rows over the candidates of the batch."""


@runtime_checkable
class PreScorePlugin(Protocol):
    """Called once for each class with its feasible nodes. Skip omits the plugin's Score."""

    def prescore(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Status:
        """Prepare the Score."""


@runtime_checkable
class ScorePlugin(Protocol):
    """Ranks the feasible nodes."""

    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        """Return [n] raw scores; higher is better."""


@runtime_checkable
class NormalizeScorePlugin(Protocol):
    """Maps raw scores to 0..100. Without it, the raw scores must be in this range."""

    def normalize(self, scores: IntArray, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        """Return [n] scores from 0 to 100."""


@runtime_checkable
class ReservePlugin(Protocol):
    """Called with a pod's node before Permit; the last point at which a plugin may keep state for the pod."""

    def reserve(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> Status:
        """Keep what the pod needs on the node. After a refusal, `unreserve` of all plugins is called."""

    def unreserve(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        """Release it. Called in reverse order for every plugin, even without `reserve` before: must be idempotent."""


@runtime_checkable
class SelectiveReservePlugin(Protocol):
    """A Reserve plugin that keeps state for some classes only."""

    def reserves_nothing(self, pod: PodClass) -> bool:
        """Return True if `reserve` would return Success for every pod of the class on every node, and keep nothing.

        `reserve` is then not called for these pods; `unreserve` is. If the plugin also has Permit, later pods of the
        same gang may already be assumed when Permit is called for a pod.
        """


@runtime_checkable
class PermitPlugin(Protocol):
    """Called before the bind: allows, rejects, or makes the pod wait.

    With the trait `permit_is_per_gang` it is called for the first of the equal pods that are assumed together.
    """

    def permit(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> PermitAnswer:
        """Decide about a pod. A waiting pod stays assumed on its node until it is allowed, rejected, or timed out."""


class BindingHandle(Protocol):
    """What plugins may use in a binding cycle."""

    @property
    def table(self) -> NodeTable:
        """The nodes, with the volumes that Reserve assumed for the pod."""

    @property
    def binder(self) -> Binder:
        """Writes to the API server. An exception ends the binding cycle."""


@runtime_checkable
class PreBindPlugin(Protocol):
    """Prepares the binding, for example by provisioning a volume."""

    async def prebind(self, pod: Pod, node: str, cycle: BindingHandle) -> Status:
        """Prepare the binding. After a refusal the pod returns to the scheduling queue."""


@runtime_checkable
class BindPlugin(Protocol):
    """Writes the binding. The first plugin that does not return Skip has bound the pod."""

    async def bind(self, pod: Pod, node: str, cycle: BindingHandle) -> Status:
        """Bind the pod, or return Skip."""


@runtime_checkable
class PostBindPlugin(Protocol):
    """Called after a pod was bound."""

    async def postbind(self, pod: Pod, node: str) -> None:
        """Handle the notification."""
