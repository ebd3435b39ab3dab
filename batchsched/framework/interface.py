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
    """A plugin that declares what it reads of a pod. Pods with equal signatures from all plugins form a class.

    If an enabled plugin has no signature, only pods with the same spec and the same labels form a class.
    """

    def signature(self, pod: Pod) -> Hashable:
        """Return a hashable value that contains everything that the plugin reads of a pod's spec.

        The session adds the namespace and the labels that selectors read, so that no class spans two namespaces.
        """


@runtime_checkable
class PodLabelKeysPlugin(Protocol):
    """A plugin that declares which labels a pod's selectors read. Other labels do not separate pods into classes."""

    def label_keys(self, pod: Pod) -> frozenset[str]:
        """Return the label keys, of this pod or of other pods, that the selectors in this pod's spec read."""


@runtime_checkable
class SnapshotLabelsPlugin(Protocol):
    """A plugin that declares which pod labels are read by selectors of objects other than pods, such as Services."""

    def snapshot_label_keys(self, snapshot: Snapshot) -> frozenset[str]:
        """Return the keys of the pod labels that selectors of the snapshot's objects read."""


@runtime_checkable
class EnqueueExtensionsPlugin(Protocol):
    """A plugin that registers the events after which a pod that it refused is tried again. Without it: every event."""

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the events with their queueing hints; an empty sequence if no event can help a refused pod."""


@runtime_checkable
class PreEnqueuePlugin(Protocol):
    """Called before a pod enters the scheduling queue. A refused pod stays outside and uses no resources.

    With the trait `preenqueue_reads_spec_only` it is called for the first of the pods that share a spec.
    """

    def preenqueue(self, pod: Pod) -> Status:
        """Return Success if the pod may be queued."""


@runtime_checkable
class QueueSortPlugin(Protocol):
    """A plugin that orders the pods of a gang, and also the gangs if no queue policy orders them. A profile has one."""

    def key(self, pod: Pod, priority: int, queued: float) -> Any:
        """Return a sort key; the smallest comes first. `queued` is in seconds since 1970."""


@runtime_checkable
class PreFilterPlugin(Protocol):
    """Called once for each class, before its Filters. It may refuse all nodes, restrict them, or prepare the Filter."""

    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        """Return a status and the nodes that may be feasible. Skip omits the plugin's Filter for this class."""


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
    """A plugin that refuses nodes for a pod class. The reason of a node is that of the first plugin that refuses it."""

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
    """A Filter that checks the allocatable amounts of nodes, but ignores some resources."""

    def ignores_resource(self, resource: str) -> bool:
        """Return True if the Filter does not check a resource. The solver then ignores the resource, too."""


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

    def run_filters(self) -> Status:
        """Call all Filters for the node, with and without nominated pods; return the first refusal, or Success."""


class MultiNodeDryRun(Protocol):
    """A dry run on several nodes at once, with one row for each. It works on copies, so nothing needs to be undone."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """The node of each row."""

    def add(self, rows: IndexArray, pods: Sequence[Pod]) -> None:
        """Add pods[i] to the node of rows[i]."""

    def remove(self, rows: IndexArray, pods: Sequence[Pod]) -> None:
        """Remove pods[i] from the node of rows[i]."""

    def run_filters(self) -> list[Status]:
        """Call all Filters for the node of each row; return the first refusal of each row, or Success."""

    def fits(self, rows: IndexArray) -> BoolArray:
        """[k] Return True for each row if the pod still fits on its node. It fitted on all before the last change."""


NodeVictims = tuple[tuple[Pod, ...], int]
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

    def potential_victims(self, node: int) -> Sequence[Pod]:
        """Return the pods on a node that may be evicted: they have a lower priority and are not protected."""

    def start_node_dry_run(self, node: int) -> NodeDryRun:
        """Start a dry run on one node."""

    def start_multi_node_dry_run(self, nodes: Sequence[int]) -> MultiNodeDryRun:
        """Start a dry run on several nodes. It omits nodes that it does not support: use `start_node_dry_run`."""

    def call_extenders(self, victims: Mapping[str, NodeVictims]) -> Mapping[str, NodeVictims]:
        """Call the extenders for victims by node name; return those that they accept, in the given order."""


@runtime_checkable
class PostFilterPlugin(Protocol):
    """Called if no node is feasible. It may nominate a node and name victims. The first Success ends the chain."""

    def postfilter(self, pod: PodClass, scan: FilterResult, handle: PostFilterHandle) -> PostFilterAnswer:
        """Return the node to nominate and the victims. `scan` has the reasons of refused nodes and the cycle state."""


@runtime_checkable
class ConstrainPlugin(Protocol):
    """Adds rows to the solver's problem. It is called once in a session, and not at all if the solver is off."""

    def constrain(self, batch: CandidateSet, nodes: Nodes) -> Sequence[Row]:
        """Return linear constraints on the candidates. A row must not forbid a placement that the plugins allow."""


@runtime_checkable
class PreScorePlugin(Protocol):
    """Called once for each class with its feasible nodes. Skip omits the plugin's Score."""

    def prescore(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Status:
        """Prepare the plugin's Score for these nodes and return a status."""


@runtime_checkable
class ScorePlugin(Protocol):
    """Ranks the feasible nodes."""

    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        """[n] Return a raw score for each node; higher is better."""


@runtime_checkable
class NormalizeScorePlugin(Protocol):
    """Maps raw scores to 0..100. Without it, the raw scores must be in this range."""

    def normalize(self, scores: IntArray, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        """[n] Return the scores mapped to 0..100."""


@runtime_checkable
class ReservePlugin(Protocol):
    """Called with a pod's node before Permit; the last point at which a plugin may keep state for the pod."""

    def reserve(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> Status:
        """Keep what the pod needs on the node. After a refusal, `unreserve` of all plugins is called."""

    def unreserve(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        """Release what `reserve` kept. It must be idempotent: all plugins get the call, even without a `reserve`."""


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
    """Called before the binding of a pod. The plugin allows the pod, rejects it, or makes it wait.

    With the trait `permit_is_per_gang` it is called for the first of the equal pods that are assumed together.
    """

    def permit(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> PermitAnswer:
        """Return Success, a refusal, or Wait. A waiting pod stays assumed until it is allowed or rejected."""


class BindingHandle(Protocol):
    """What plugins may use in a binding cycle."""

    @property
    def table(self) -> NodeTable:
        """The nodes, with the volumes that Reserve assumed for the pod."""

    @property
    def binder(self) -> Binder:
        """The component that writes to the API server. An exception of it ends the binding cycle."""


@runtime_checkable
class PreBindPlugin(Protocol):
    """Prepares the binding, for example by provisioning a volume."""

    async def prebind(self, pod: Pod, node: str, cycle: BindingHandle) -> Status:
        """Prepare the binding and return a status. After a refusal the pod returns to the scheduling queue."""


@runtime_checkable
class BindPlugin(Protocol):
    """Writes the binding. The first plugin that does not return Skip has bound the pod."""

    async def bind(self, pod: Pod, node: str, cycle: BindingHandle) -> Status:
        """Bind the pod, or return Skip."""


@runtime_checkable
class PostBindPlugin(Protocol):
    """Called after a pod was bound."""

    async def postbind(self, pod: Pod, node: str) -> None:
        """Do what the plugin has to do after the binding, such as removing what it kept for the pod."""
