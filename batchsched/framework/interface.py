"""The protocols of the extension points, in the order in which the extension points are called.

A plugin is a class with a `name` and the methods of its extension points. It needs no base class; a method with the
name of an extension point makes the pipeline call it. A plugin with arguments has a pydantic model `Args`. Arrays
have one entry for each node of the `Nodes` that a method gets as its argument.

Each protocol states when it is called and what its answers cause. Plugins must not keep their arguments after a call,
except values in the cycle state.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from batchsched.api.core.cluster_objects import PodDisruptionBudget
from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot
from batchsched.framework.constrain import CandidateSet, ConstraintRow
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.events import ClusterEventWithHint
from batchsched.framework.filter_result import FilterResult
from batchsched.framework.nodes.node_table import Nodes, NodeTable, ReservedVolumesAndDevices
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
    """The interface that all plugins share: the attribute `name`.

    `traits` (see `framework.traits`) and `Args` (a pydantic model) are optional.
    """

    name: ClassVar[str]


@runtime_checkable
class SignaturePlugin(Protocol):
    """A plugin that declares which parts of a pod it reads. Pods with equal signatures from all plugins form a class.

    If an enabled plugin has no signature, only pods with the same spec and the same labels form a class.
    """

    def signature(self, pod: Pod) -> Hashable:
        """Return a hashable value made of all parts of a pod's spec that the plugin reads.

        It need not contain the resource requests: the session adds them, the namespace, and the labels that selectors
        read, so that no class spans two namespaces.
        """


@runtime_checkable
class SelectorLabelKeysPlugin(Protocol):
    """A plugin that declares the pod label keys that occur in the selectors of a pod's spec.

    Other labels do not separate pods into classes.
    """

    def selector_label_keys(self, pod: Pod) -> frozenset[str]:
        """Return the pod label keys that occur in the selectors of a pod's spec, such as those of pod affinity."""


@runtime_checkable
class ObjectSelectorLabelKeysPlugin(Protocol):
    """A plugin that declares the pod label keys in the selectors of Services and similar objects."""

    def object_selector_label_keys(self, snapshot: Snapshot) -> frozenset[str]:
        """Return the pod label keys in the selectors of Services and other objects of the cluster."""


@runtime_checkable
class EnqueueExtensionsPlugin(Protocol):
    """A plugin that registers the cluster events after which the pods that it refused are tried again.

    The refused pods of a plugin without this protocol are tried again after every event.
    """

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the cluster events that may help a pod that the plugin refused, with their hint functions.

        The result is empty if no event can help.
        """


@runtime_checkable
class PreEnqueuePlugin(Protocol):
    """A plugin that is called before a pod enters the scheduling queue, and may refuse the pod.

    A refused pod stays outside the queue and uses no resources.

    With the trait `preenqueue_reads_spec_only` it is called only for the first of the pods that share a spec.
    """

    def preenqueue(self, pod: Pod) -> Status:
        """Return Success if the pod may enter the scheduling queue, otherwise a refusal."""


@runtime_checkable
class QueueSortPlugin(Protocol):
    """A plugin that orders the pods of a gang, and also the gangs if no queue policy orders them. A profile has one."""

    def sort_key(self, pod: Pod, priority: int, queued: float) -> Any:
        """Return the key by which a pod is sorted; the pod with the smallest key comes first.

        `queued` is in seconds since 1970.
        """


@runtime_checkable
class PreFilterPlugin(Protocol):
    """A plugin that is called for a pod class before the Filter plugins.

    It may refuse all nodes, restrict them, or prepare the Filter.
    """

    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        """Return a status for a pod class, and the nodes that may be feasible for it.

        Skip omits the plugin's Filter for this class. After a lasting Skip, the method is not called for other pods of
        the class until a Node object changes.
        """


@runtime_checkable
class PreFilterExtensionsPlugin(Protocol):
    """A plugin that updates its PreFilter state when pods are added to nodes or removed from nodes.

    These are placed pods, nominated pods, and victims.

    State values that these methods change must have `clone()`, so that a dry run works on a copy.
    """

    def add_pod(self, pod: PodClass, added: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        """Update the plugin's PreFilter state after a pod was added to a node."""

    def remove_pod(self, pod: PodClass, removed: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        """Update the plugin's PreFilter state after a pod was removed from a node."""


@runtime_checkable
class FilterPlugin(Protocol):
    """A plugin that refuses nodes for a pod class. If several refuse a node, the reason of the first one counts."""

    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        """Return which of the given nodes the plugin refuses for a pod class, and why. It must have no side effects."""


@runtime_checkable
class BulkFilterPlugin(Protocol):
    """A Filter plugin that can test with one call whether several equal pods fit on nodes together.

    Without this interface, `filter` is called for each pod.
    """

    def allows_bulk_placement(
        self, pod: PodClass, table: NodeTable, nodes: IndexArray, counts: IndexArray
    ) -> bool:
        """Return True if `counts[i]` equal pods may be placed on each node `nodes[i]`, all of them together.

        A node is in `nodes` once. Return True only if `filter`, called before each of these pods with the earlier
        ones in place, would refuse none of them. The method may be called without a PreFilter before it.
        """


@runtime_checkable
class IgnoredResourcesPlugin(Protocol):
    """A Filter that compares requests with the allocatable amounts of nodes, but ignores some resources."""

    def ignores_resource(self, resource: str) -> bool:
        """Return True if the Filter does not check whether nodes have enough of a resource.

        The solver then ignores the resource, too.
        """


class NodeDryRun(Protocol):
    """A dry run of preemption on one node: pods are removed and added, then the Filters are called.

    The exit undoes all changes.
    """

    def __enter__(self) -> "NodeDryRun":
        """Begin the dry run."""

    def __exit__(self, *_: object) -> None:
        """Undo all changes of the dry run."""

    def add_pod(self, pod: Pod) -> None:
        """Add a pod to the node of this dry run."""

    def remove_pod(self, pod: Pod) -> None:
        """Remove a pod from the node of this dry run."""

    def run_filters(self) -> Status:
        """Call the Filters for the pending pod on the node, with and without the node's nominated pods.

        Return the first refusal, or Success.
        """


class CandidateNodesDryRun(Protocol):
    """A dry run of preemption on several nodes at once.

    The dry run works on copies, so nothing needs to be undone.
    """

    @property
    def node_indexes(self) -> tuple[int, ...]:
        """The nodes of this dry run, as indexes into the node table.

        The arguments `rows` of the other methods are positions in this tuple.
        """

    def add_pods(self, rows: IndexArray, pods: Sequence[Pod]) -> None:
        """Add each pod to one node of this dry run.

        `rows` has for each pod the position of its node in `node_indexes`.
        """

    def remove_pods(self, rows: IndexArray, pods: Sequence[Pod]) -> None:
        """Remove each pod from one node of this dry run.

        `rows` has for each pod the position of its node in `node_indexes`.
        """

    def run_filters(self) -> list[Status]:
        """Call all Filters for each node of this dry run, and return for each node the first refusal, or Success."""

    def mask_where_pending_pod_still_fits(self, rows: IndexArray) -> BoolArray:
        """Return a mask over the given nodes of this dry run: True where the pending pod still fits.

        `rows` has the positions of the given nodes in `node_indexes`. The pod fitted on all of them before the last
        change.
        """


NodeVictims = tuple[tuple[Pod, ...], int]
"""Victims on a node, the most important first, and the number of disruption budgets that their eviction violates."""


class PostFilterHandle(Protocol):
    """The interface through which a PostFilter plugin reads the cluster and simulates evictions."""

    @property
    def node_table(self) -> NodeTable:
        """The node table: all nodes with the pods on them."""

    @property
    def budgets(self) -> Sequence[PodDisruptionBudget]:
        """The PodDisruptionBudgets as they are after the evictions that this session has decided so far."""

    def priority_of(self, pod: Pod) -> int:
        """Return the priority that preemption uses for a pod."""

    def potential_victims(self, node: int) -> Sequence[Pod]:
        """Return the pods on a node that have lower priority than the pending pod and are not protected."""

    def start_node_dry_run(self, node: int) -> NodeDryRun:
        """Start a dry run of evictions on one node."""

    def start_candidate_nodes_dry_run(self, nodes: Sequence[int]) -> CandidateNodesDryRun:
        """Start a dry run of evictions on several nodes at once.

        It omits nodes that it does not support: use `start_node_dry_run` for them.
        """

    def call_extenders(self, victims: Mapping[str, NodeVictims]) -> Mapping[str, NodeVictims]:
        """Send the proposed victims on each node to the extenders; return the victims that they choose.

        The extenders may replace victims, and may drop nodes.
        """


@runtime_checkable
class PostFilterPlugin(Protocol):
    """A plugin that is called for a pod if no node is feasible for it.

    It may nominate a node and name victims. The first Success ends the chain.
    """

    def postfilter(self, pod: PodClass, scan: FilterResult, handle: PostFilterHandle) -> PostFilterAnswer:
        """Return the node to nominate for the pod, and the victims to evict from this node.

        `scan` has the reasons of refused nodes and the cycle state.
        """


@runtime_checkable
class ConstrainPlugin(Protocol):
    """A plugin that adds linear constraints to the solver's problem.

    It is called for each problem that the session builds, and not at all if the solver is off.
    """

    def constrain(self, batch: CandidateSet, nodes: Nodes) -> Sequence[ConstraintRow]:
        """Return linear constraints on the numbers of pods that the solver places, by pod class and topology domain.

        A constraint must not forbid a placement that the plugins allow.
        """


@runtime_checkable
class PreScorePlugin(Protocol):
    """A plugin that is called with all feasible nodes of a pod class before the nodes are scored.

    If the plugin returns Skip, its Score is not called.
    """

    def prescore(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Status:
        """Compute what Score needs for a pod class and its feasible nodes, and return a status.

        After a lasting Skip, the method is not called for other pods of the class with the same feasible nodes until a
        Node object changes.
        """


@runtime_checkable
class ScorePlugin(Protocol):
    """A plugin that scores the feasible nodes of a pod class."""

    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        """Return an array [n] with the raw score of each feasible node for a pod class.

        Without NormalizeScore, raw scores are from 0 to 100 and higher is better. With NormalizeScore, only the mapped
        scores have to be like this.
        """


@runtime_checkable
class NormalizeScorePlugin(Protocol):
    """A plugin that converts its own raw scores to the range 0 to 100, where higher is better.

    Without it, the raw scores must be in this range.
    """

    def normalize(self, scores: IntArray, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        """Convert the raw scores of all feasible nodes to the range 0 to 100, and return them.

        The arrays have the shape [n]. Higher scores are better.
        """


@runtime_checkable
class ReservePlugin(Protocol):
    """A plugin that is called with a pod and its chosen node before Permit, and may keep state for the pod.

    Reserve is the last extension point at which a plugin may keep state for the pod.
    """

    def reserve(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> Status:
        """Reserve what the pod needs on its chosen node, such as volumes, and return a status.

        After a refusal, `unreserve` of all plugins is called.
        """

    def unreserve(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        """Release what `reserve` kept for the pod on its node.

        It must be idempotent: all plugins get the call, even without a `reserve`.
        """


@runtime_checkable
class NominatedPodPlugin(Protocol):
    """A plugin that reserves resources other than CPU and memory, such as devices, for nominated pods.

    The session calls it for nominated pods that it has not placed, before it places gangs of lower tiers.
    """

    def hold_for_nominated_pod(self, pod: Pod, node: int, nodes: NodeTable) -> None:
        """Reserve what a nominated pod needs on its node, such as devices, if it is still available."""

    def stop_holding_for_nominated_pod(self, pod: Pod, nodes: NodeTable) -> None:
        """Release everything that `hold_for_nominated_pod` has reserved for a pod."""


@runtime_checkable
class SelectiveReservePlugin(Protocol):
    """A Reserve plugin that keeps state only for pods of some pod classes."""

    def reserves_nothing(self, pod: PodClass, nodes: NodeTable) -> bool:
        """Return True if `reserve` would keep no state and return Success for every pod of the class on every node.

        The plugin is asked once in each session; `nodes` has the objects of the session.
        After True, `reserve` is not called for these pods, but `unreserve` is. If the plugin also has Permit, later
        pods of the same gang may already be assumed when Permit is called for a pod.
        """


@runtime_checkable
class PermitPlugin(Protocol):
    """A plugin that is called before the binding of a pod, and allows the pod, rejects it, or makes it wait.

    With the trait `permit_is_per_gang` it is called only for the first of the equal pods that are assumed together.
    """

    def permit(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> PermitAnswer:
        """Return Success to allow the pod, a refusal to reject it, or Wait to make it wait at Permit.

        A waiting pod stays assumed until it is allowed or rejected.
        """


class BindingHandle(Protocol):
    """The interface through which plugins read nodes and write to the API server in a binding cycle."""

    @property
    def node_table(self) -> NodeTable:
        """The node table, which later sessions may change while the pod is being bound."""

    @property
    def reserved_volumes_and_devices(self) -> ReservedVolumesAndDevices:
        """The volumes and devices that Reserve plugins reserved for the pod, as a copy that stays unchanged.

        Do not change the value: all pods without volumes and devices share the same value.
        """

    @property
    def binder(self) -> Binder:
        """The component through which plugins write to the API server.

        An exception from it ends the binding cycle.
        """


@runtime_checkable
class PreBindPlugin(Protocol):
    """A plugin that prepares the binding of a pod, for example by provisioning a volume."""

    async def prebind(self, pod: Pod, node: str, cycle: BindingHandle) -> Status:
        """Prepare the binding of the pod to the node, and return a status.

        After a refusal the pod returns to the scheduling queue.
        """


@runtime_checkable
class ReversiblePreBindPlugin(PreBindPlugin, Protocol):
    """A PreBind plugin that can undo what it wrote for a pod, if the pod is not bound.

    If `writes_in_prebind` returns True for a pod of a gang, no pod of the gang is bound before all of them have passed
    PreBind. If one of them does not, `undo_prebind` is called for all.
    """

    def writes_in_prebind(self, pod: Pod, table: NodeTable) -> bool:
        """Return whether `prebind` writes something for the pod that `undo_prebind` may have to undo."""

    async def undo_prebind(self, pod: Pod, node: str, cycle: BindingHandle) -> None:
        """Undo what `prebind` wrote for a pod that is not bound.

        It must be idempotent: it is also called if `prebind` failed, or was not called.
        """


@runtime_checkable
class BindPlugin(Protocol):
    """A plugin that writes the binding of a pod to the API server.

    The first plugin that does not return Skip has bound the pod.
    """

    async def bind(self, pod: Pod, node: str, cycle: BindingHandle) -> Status:
        """Bind the pod to the node, or return Skip to leave the pod to the next Bind plugin."""


@runtime_checkable
class PostBindPlugin(Protocol):
    """A plugin that is called after a pod was bound."""

    async def postbind(self, pod: Pod, node: str) -> None:
        """Finish the plugin's work for a bound pod, such as removing state that the plugin kept for the pod."""
