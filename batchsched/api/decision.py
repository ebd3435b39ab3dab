"""Decision: the result of a session. Its JSON is part of the public API."""

from typing import Any, Final

import msgspec

from batchsched.api.core.device import AllocationResult
from batchsched.api.core.metadata import parse_timestamp

REASONS: Final = {
    "NoNodes": "the cluster has no nodes",
    "PodGroupNotFound": "the pod names a PodGroup that does not exist, or one that was set aside as invalid",
    "QueueNotFound": "the gang's Queue does not exist, or was set aside as invalid",
    "NamespaceNotSelected": "the namespaceSelector of its Queue, or of a Queue above it, does not select its namespace",
    "UnknownTopologyLevel": "the PodGroup names a Topology, or a level of it, that does not exist",
    "NotEnoughPods": "the gang has fewer pods than its minMember, or a subGroup has fewer than its own minMember",
    "Gated": "pods that the gang needs have scheduling gates, or another PreEnqueue plugin refuses them",
    "UnsupportedField": "a pod or the PodGroup asks for something that batchsched does not support, in the named field",
    "PodSpecLimit": "a pod has more affinity terms, resources or other constraints than batchsched supports in one pod",
    "SeveralUsers": "the gang's pods have different users, and its Queue, or a Queue above it, sets userLimits",
    "QueueLimit": "the gang would exceed the limit or maxRunningPodGroups of its Queue, or of a Queue above it",
    "NoFeasibleNode": "no node accepts a pod of the gang: Filters refuse them, or the pod requests more than they have",
    "InsufficientResources": "the nodes that pass the Filters do not have enough free resources",
    "InsufficientTopologyCapacity": "no topology domain of the required level has room for the gang",
    "PluginConstraint": "no placement satisfies the rules of plugins between pods (spread, affinity, ports, volumes)",
    "OutOfTurn": "the gang must not delay a gang ahead of it that cannot start yet, or the policy keeps room free",
    "OutsideWindow": "a session tries at most sessionWindow gangs, and as many are ahead of this one",
    "PermitRejected": "a Reserve or Permit plugin refused a pod of the gang",
    "PermitTimeout": "a pod of the gang waited at Permit longer than a Permit plugin allows",
    "PluginFailed": "a plugin failed while it handled a pod of the gang",
    "ExplanationFailed": "the gang was not placed, and a defect of batchsched prevents a further explanation",
}
"""Reasons of refusals with their meanings. The list is closed: a new reason comes with a changelog entry."""
NODE_REASONS: Final = frozenset(
    {
        "NoNodes",
        "NoFeasibleNode",
        "InsufficientResources",
        "InsufficientTopologyCapacity",
        "PluginConstraint",
    }
)
"""Reasons of refusals that additional nodes may remove. With any other reason, new nodes leave the gang pending."""


class DecisionBase(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The base class of `Decision` and of all values that a decision contains."""

    def to_dict(self) -> dict[str, Any]:
        """Return this part of a decision as a dict, with the same names and values as in the decision's JSON.

        A data frame can be built from a list of these dicts, for example from the dicts of all assignments.
        """
        content: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return content


class _PodEntry(DecisionBase, frozen=True):
    """What a decision says about one pod."""

    namespace: str
    pod: str

    @property
    def pod_key(self) -> str:
        """The `namespace/name` of the pod."""
        return f"{self.namespace}/{self.pod}"


class ClaimAssignment(DecisionBase, frozen=True, omit_defaults=True):
    """A ResourceClaim of an assigned pod, with the devices that the claim gets unless it has an allocation.

    Args:
      claim: the name of the claim in the namespace of the pod; `<extended-resources>` for the claim that must be
        created for the extended resources of the pod.
      allocation: the devices that the claim gets; None if it has an allocation, so that the pod only becomes one more
        of its users.
    """

    claim: str
    allocation: AllocationResult | None = None


class Assignment(_PodEntry, frozen=True, omit_defaults=True):
    """A pod and the node to which it is to be bound, with its ResourceClaims."""

    node: str
    claims: tuple[ClaimAssignment, ...] = ()


class Eviction(_PodEntry, frozen=True):
    """A pod to evict, with the reason and the gang for which it is evicted."""

    pod_group: str
    for_: str = msgspec.field(name="for")
    reason: str


PRECEDENCES: Final = {
    "Guarantee": "it is inside the guarantee of its queue",
    "FairShare": "it is inside the fair share of its queue",
    "Priority": "it has a higher priority",
    "Order": "it comes first in the order of the policy",
    "Weight": "the gangs that were chosen have more weight together",
    "Running": "it runs",
}
"""Rights by which a gang goes before a refused one, with their meanings. The list is closed."""


PROTECTIONS: Final = {
    "SystemCritical": "it has pods of a system-critical priority above that of the refused gang",
    "NotPreemptible": "its PodGroup has preemptible: false",
    "MinRuntime": "it has not run for the minRuntimeSeconds of its PodGroup",
    "ReclaimMinRuntime": "it has not run for the reclaimMinRuntimeSeconds of its queue",
    "DisruptionBudget": "a PodDisruptionBudget allows fewer evictions than it has pods",
}
"""What protects a running gang from eviction for a refused one, with the meanings. The list is closed."""


class PrecedingGang(DecisionBase, frozen=True, omit_defaults=True):
    """A gang that holds resources which a refused gang lacks, with the reason why it precedes the refused gang.

    Args:
      pod_group: namespace/name.
      because: a key of PRECEDENCES.
      protection: a key of PROTECTIONS if the gang runs and the refused gang might evict it without this protection;
        otherwise "".
    """

    pod_group: str
    because: str
    protection: str = ""


class InputChange(DecisionBase, frozen=True, omit_defaults=True):
    """A change of the input that may admit a refused gang: one field that is set, or nodes that are added.

    Args:
      set: the object that has the field, `Kind/name` or `Kind/namespace/name`; `PodTemplate/namespace/name` stands for
        every pending pod of that gang. "" if nodes are added.
      path: JSON pointer of the field; missing parents are created, and a last `-` appends to a list.
      value: the value of the field; null removes it.
      copy: `Node/name` of the node that the new nodes equal in labels, taints and capacity; "" if a field is set. Their
        label `kubernetes.io/hostname` is their own name.
      count: the number of new nodes.
    """

    set: str = ""
    path: str = ""
    value: Any = msgspec.UNSET
    copy: str = ""
    count: int = 0


class Refusal(DecisionBase, frozen=True):
    """A gang that is not placed: the reason, the missing resources, and changes that would admit the gang.

    Args:
      pod_group: namespace/name.
      reason: a key of REASONS.
      message: a sentence for users.
      missing: missing amounts by resource in base units (milli-CPU, bytes, devices), {} if no amount is missing.
      relaxation: the smallest change that admits the gang, as a sentence; "" if none was found.
      startable: False if the gang could not start on this cluster even if it were empty and every queue unused.
      ahead: placed and running gangs that hold what this gang lacks, at most ten, the largest first.
      changes: a smallest set of changes after which a session places the gang; empty if none was found.
      verified: True if `startable` and `changes` were verified by deciding again. A session itself does not verify
        them; commands do, within a budget.
    """

    pod_group: str
    reason: str
    message: str
    missing: dict[str, int] = {}
    relaxation: str = ""
    startable: bool = True
    ahead: tuple[PrecedingGang, ...] = ()
    changes: tuple[InputChange, ...] = ()
    verified: bool = False


def refusal_text(refusal: Refusal) -> str:
    """Return a refusal as one sentence for users: why the gang is not placed, and what would help it."""
    if not refusal.relaxation:
        return refusal.message.rstrip(".")
    unproved = "" if refusal.verified else " (not verified)"
    return f"{refusal.message.rstrip('.')}; would help{unproved}: {refusal.relaxation}"


def new_nodes_may_help(refusal: Refusal) -> bool:
    """Return whether the gang of a refusal may start if nodes are added to the cluster and nothing else changes.

    A queue limit is reported before missing capacity, so a gang that lacks both has the reason QueueLimit. If the
    verified changes raise a limit of a queue as well, new nodes alone do not help.
    """
    needs_queue = any(change.set.startswith("Queue/") for change in refusal.changes)
    return refusal.reason in NODE_REASONS and not needs_queue


class Reservation(DecisionBase, frozen=True):
    """A gang for which capacity is kept free, and its earliest start (RFC 3339)."""

    pod_group: str
    start: str


class Nomination(_PodEntry, frozen=True):
    """A pod, and a node on which capacity is kept free for it."""

    node: str


class WaitingAtPermit(DecisionBase, frozen=True):
    """A gang that waits at Permit, with the plugin that answered Wait and the deadline (RFC 3339).

    The nodes of its pods are nominations.
    """

    pod_group: str
    plugin: str
    until: str

    @property
    def deadline(self) -> float:
        """The deadline in seconds since 1970."""
        return parse_timestamp(self.until)


class SetAside(DecisionBase, frozen=True):
    """An invalid object that was ignored, with the invalid field and a message."""

    file: str
    object: str
    field: str
    message: str

    @property
    def field_and_message(self) -> str:
        """The invalid field and the message as one text, without the name of the object."""
        return f"{self.field}: {self.message}" if self.field else self.message


class TierObjective(DecisionBase, frozen=True):
    """The solver's objective value, and its upper bound, for the gangs of one entitlement class and priority."""

    share: str
    priority: int
    objective: float
    bound: float


class SolverAccount(DecisionBase, frozen=True):
    """The record of the solver's work: objective value and upper bound by tier of gangs, relative gap, and time.

    `seconds` and `stages` are durations that the caller measured and added; they are 0 and empty otherwise, so that
    equal sessions give equal bytes.
    """

    tiers: tuple[TierObjective, ...] = ()
    gap: float = 0.0
    guard: bool = False
    seconds: float = 0.0
    stages: dict[str, float] = {}


class Decision(DecisionBase, frozen=True):
    """The result of a session: pods to bind, pods to evict, gangs that wait at Permit, and refused gangs.

    Lists are sorted, so equal decisions are equal bytes.
    """

    assignments: tuple[Assignment, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    waiting: tuple[WaitingAtPermit, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    solver: SolverAccount = SolverAccount()


def without_measured_durations(decision: Decision) -> Decision:
    """Return a decision without measured durations, so that a replay can compare it with another decision."""
    account = msgspec.structs.replace(decision.solver, seconds=0.0, stages={})
    return msgspec.structs.replace(decision, solver=account)


def to_json(decision: Decision) -> bytes:
    """Return a decision as JSON on one line."""
    return msgspec.json.encode(decision)
