"""The extension points, in call order: one protocol each.

A plugin is a class with a `name`, an `Args` model where it takes arguments, and the methods of the points at
which it wants to be asked. Nothing is inherited; what a class has is what it is asked. Arrays have one entry for
each node of the view that is handed in.

Who calls, and what an answer causes, stands at each point. A plugin never keeps what it is handed beyond the
call, save in the cycle state.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from batchsched.api.core.cluster_objects import PodDisruptionBudget
from batchsched.api.core.pod import Pod
from batchsched.api.snapshot import Snapshot
from batchsched.framework.constrain import Batch, Row
from batchsched.framework.cycle_state import CycleState
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
from batchsched.ports.binder import Binder


class Plugin(Protocol):
    """What every plugin has. `traits` (see `framework.traits`) and `Args` (a pydantic model) are optional."""

    name: ClassVar[str]


@runtime_checkable
class SignaturePlugin(Protocol):
    """Says what of a pod the plugin looks at; equal answers of all plugins make pods one class.

    If an enabled plugin has no signature, the whole spec and all labels count.
    """

    def signature(self, pod: Pod) -> Hashable:
        """Return what the plugin reads of a pod's spec. Labels are added by the session where selectors read them."""
        ...


@runtime_checkable
class LabelReadingPlugin(Protocol):
    """Says which labels a pod's selectors read, so that pods that differ in others alone stay one class."""

    def label_keys(self, pod: Pod) -> frozenset[str]:
        """Return the keys of the labels, on any pod, that selectors of this pod look at."""
        ...


@runtime_checkable
class SnapshotLabelsPlugin(Protocol):
    """Says which labels are read of all pods because of other objects, such as Services that select them."""

    def snapshot_label_keys(self, snapshot: Snapshot) -> frozenset[str]:
        """Return the keys of the labels, on any pod, that selectors of the snapshot's objects look at."""
        ...


@runtime_checkable
class PreEnqueuePlugin(Protocol):
    """Asked before a pod may enter the queue. A refusal keeps it out, and holds nothing.

    With the trait `preenqueue_reads_spec_only` it is called for the first of the pods that share a spec.
    """

    def preenqueue(self, pod: Pod) -> Status:
        """Say whether the pod may be queued."""
        ...


@runtime_checkable
class QueueSortPlugin(Protocol):
    """Orders pods of one gang, and gangs where no policy does. Exactly one is enabled."""

    def key(self, pod: Pod, priority: int, queued: float) -> Any:
        """Return a sort key, the smallest first. `queued` is in seconds since 1970."""
        ...


@runtime_checkable
class PreFilterPlugin(Protocol):
    """Asked once for each class, before its Filter. Refuses the pod everywhere, narrows the nodes, or computes."""

    def prefilter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> PreFilterAnswer:
        """Prepare the Filter; Skip drops it for this class."""
        ...


@runtime_checkable
class PreFilterExtensionsPlugin(Protocol):
    """Keeps a PreFilter's state true while pods come and go: the session's own, nominated pods, and victims.

    A value in the state that these methods change has a `clone()`, so that what is only tried leaves no trace.
    """

    def add_pod(self, pod: PodClass, added: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        """Count a pod that was put on a node of the table."""
        ...

    def remove_pod(self, pod: PodClass, removed: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        """Count a pod that was taken off a node of the table."""
        ...


@runtime_checkable
class FilterPlugin(Protocol):
    """Judges nodes. The first plugin that refuses a node gives the node's reason."""

    def filter(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Verdict:
        """Say which nodes of the view refuse the pod, and why. Must be free of side effects."""
        ...


@runtime_checkable
class BulkFilterPlugin(Protocol):
    """A Filter that can judge several equal pods at once; without it they are asked about one by one."""

    def admits(self, pod: PodClass, table: NodeTable, nodes: IndexArray, counts: IndexArray) -> bool:
        """Tell whether counts[i] of the pods may land on nodes[i], one after the other, on all of the nodes.

        Each node stands in `nodes` once. True only where `filter`, asked before each of the pods with those
        before it in place, would refuse none; needs no PreFilter before.
        """
        ...


@runtime_checkable
class IgnoredResourcesPlugin(Protocol):
    """A Filter that counts capacity and leaves out some resources."""

    def ignores_resource(self, resource: str) -> bool:
        """Return True if the Filter does not check the capacity of a resource. The solver then ignores it, too."""
        ...


class Trial(Protocol):
    """One node as it would be: pods leave it and come back, and the filters are asked. Undone when it is left."""

    def __enter__(self) -> "Trial":
        """Begin."""
        ...

    def __exit__(self, *_: object) -> None:
        """Put everything back."""
        ...

    def add(self, pod: Pod) -> None:
        """Put a pod on the node."""
        ...

    def remove(self, pod: Pod) -> None:
        """Take a pod off the node."""
        ...

    def refusal(self) -> Status:
        """Ask all Filters about the node as it is now, with nominated pods and without; Success when it fits."""
        ...


class Trials(Protocol):
    """Several nodes as they would be, tried together: a row for each. Nothing has to be undone."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes that are tried, row by row."""
        ...

    def add(self, rows: IndexArray, pods: Sequence[Pod]) -> None:
        """Put pods[i] on the node of rows[i]."""
        ...

    def remove(self, rows: IndexArray, pods: Sequence[Pod]) -> None:
        """Take pods[i] off the node of rows[i]."""
        ...

    def refusals(self) -> list[Status]:
        """Ask all Filters about each node as it is now; Success where it fits."""
        ...

    def fits(self, rows: IndexArray) -> BoolArray:
        """[k] Tell which rows fit as they are now, of some that fitted before."""
        ...


Leaving = tuple[tuple[Pod, ...], int]
"""The pods that would leave a node, the most important first, and how many disruption budgets that violates."""


class PostFilterHandle(Protocol):
    """What a PostFilter may look at, and what it may try."""

    @property
    def table(self) -> NodeTable:
        """The nodes and the pods on them."""
        ...

    @property
    def budgets(self) -> Sequence[PodDisruptionBudget]:
        """The disruption budgets, what was evicted in this session taken off."""
        ...

    def priority_of(self, pod: Pod) -> int:
        """Return a pod's resolved priority."""
        ...

    def lower_on(self, node: int) -> Sequence[Pod]:
        """Return the pods on a node that may be made to leave: of lower priority, and not spared."""
        ...

    def trial(self, node: int) -> Trial:
        """Begin a trial of one node of the table."""
        ...

    def trials(self, nodes: Sequence[int]) -> Trials:
        """Begin trials of those of some nodes that can be tried together: the others need one of their own."""
        ...

    def agreed(self, victims: Mapping[str, Leaving]) -> Mapping[str, Leaving]:
        """Return the nodes where room may be made, by name, after the extenders were asked; in their order."""
        ...


@runtime_checkable
class PostFilterPlugin(Protocol):
    """Asked when no node fits: may nominate a node after making room. First success wins."""

    def postfilter(self, pod: PodClass, scan: FilterResult, handle: PostFilterHandle) -> PostFilterAnswer:
        """Say what would make room; `scan` says why each node was refused, and holds the cycle's state."""
        ...


@runtime_checkable
class ConstrainPlugin(Protocol):
    """Adds rows to the session's problem. Asked once a session, and never when the solver is off."""

    def constrain(self, batch: Batch, nodes: Nodes) -> Sequence[Row]:
        """Return valid rows over the batch's candidates."""
        ...


@runtime_checkable
class PreScorePlugin(Protocol):
    """Asked once for each class with the nodes that fit. Skip drops the plugin's Score."""

    def prescore(self, pod: PodClass, nodes: Nodes, state: CycleState) -> Status:
        """Prepare the Score."""
        ...


@runtime_checkable
class ScorePlugin(Protocol):
    """Ranks the nodes that fit."""

    def score(self, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        """Return [n] raw scores, the higher the better."""
        ...


@runtime_checkable
class NormalizeScorePlugin(Protocol):
    """Brings raw scores into 0..100. Where it is missing they are there already."""

    def normalize(self, scores: IntArray, pod: PodClass, nodes: Nodes, state: CycleState) -> IntArray:
        """Return [n] scores from 0 to 100."""
        ...


@runtime_checkable
class ReservePlugin(Protocol):
    """Told of a pod's node before the pod is let go; the last point at which state may be kept for it."""

    def reserve(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> Status:
        """Keep what the pod needs on the node. A refusal unreserves every plugin."""
        ...

    def unreserve(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> None:
        """Give it back. Called in reverse order for every plugin, reserved or not: must be idempotent."""
        ...


@runtime_checkable
class SelectiveReservePlugin(Protocol):
    """A Reserve that knows classes for whose pods it keeps nothing; without it all pods are shown to it."""

    def reserves_nothing(self, pod: PodClass) -> bool:
        """Tell whether `reserve` would say Success of any pod of the class on any node, and keep nothing.

        Such pods are not shown to `reserve`; `unreserve` is called for them as for all others. A plugin that says so
        and is asked at Permit, too, may find pods there that go the same way after the one it is asked about.
        """
        ...


@runtime_checkable
class PermitPlugin(Protocol):
    """The gate before binding: allows, refuses, or makes the pod wait.

    With the trait `permit_is_per_gang` it is called for the first of the equal pods that are assumed together.
    """

    def permit(self, pod: Pod, node: int, nodes: NodeTable, state: CycleState) -> PermitAnswer:
        """Decide. A waiting pod keeps its place until it is allowed, refused or timed out."""
        ...


class BindingHandle(Protocol):
    """What plugins have in a binding cycle."""

    @property
    def table(self) -> NodeTable:
        """The nodes, with what Reserve promised the pod."""
        ...

    @property
    def binder(self) -> Binder:
        """Writes; what it raises ends the cycle."""
        ...


@runtime_checkable
class PreBindPlugin(Protocol):
    """Does what must be done before the binding is written, such as provisioning a volume."""

    async def prebind(self, pod: Pod, node: str, cycle: BindingHandle) -> Status:
        """Prepare the binding; a refusal sends the pod back."""
        ...


@runtime_checkable
class BindPlugin(Protocol):
    """Writes the binding. The first that does not Skip has done it."""

    async def bind(self, pod: Pod, node: str, cycle: BindingHandle) -> Status:
        """Bind, or Skip."""
        ...


@runtime_checkable
class PostBindPlugin(Protocol):
    """Told after a pod was bound."""

    async def postbind(self, pod: Pod, node: str) -> None:
        """Take note."""
        ...
