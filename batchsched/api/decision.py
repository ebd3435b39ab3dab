"""Decision: everything that follows from a snapshot. Its JSON is part of the public surface."""

from typing import Final

import msgspec

REASONS: Final = {
    "NoNodes": "the cluster has no nodes",
    "PodGroupNotFound": "the pod names a PodGroup that does not exist",
    "QueueNotFound": "the PodGroup names a Queue that does not exist, or one that was set aside",
    "UnknownTopologyLevel": "the PodGroup names a Topology or a level that does not exist",
    "NotEnoughPods": "fewer pods exist than minMember, or a subGroup's minMember, asks for",
    "Gated": "members carry scheduling gates",
    "QueueLimit": "the limit or maxRunningPodGroups of a Queue, or of one above it, is reached",
    "NoFeasibleNode": "the filters leave no node for a member, however empty the cluster is",
    "InsufficientResources": "the nodes that pass the filters have too little left",
    "InsufficientTopologyCapacity": "no domain of the required level has room for the gang",
    "PluginConstraint": "a plugin's rule between pods (spread, affinity, ports, volumes) does not leave a way",
    "OutOfTurn": "a gang ahead in a blocking order could not start",
    "OutsideWindow": "the session looks at a bounded number of gangs, and this one is behind them",
    "PermitRejected": "a Permit plugin refused a member",
    "PermitTimeout": "a member waited at Permit longer than scheduleTimeoutSeconds",
    "PluginFailed": "a plugin broke while it looked at a member",
}
"""Why a gang was refused: closed, an addition is a changelog entry."""


class DecisionItem(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The base of a decision's parts."""


class Assignment(DecisionItem, frozen=True):
    """A pod and the node it is to be bound to."""

    namespace: str
    pod: str
    node: str


class Eviction(DecisionItem, frozen=True):
    """A pod that has to go, for whom, and why."""

    namespace: str
    pod: str
    pod_group: str
    for_: str = msgspec.field(name="for")
    reason: str


class Refusal(DecisionItem, frozen=True):
    """A gang that is not placed: the constraint that binds, what is missing, what would unblock it.

    Args:
      pod_group: namespace/name.
      reason: a key of REASONS.
      message: a sentence for people.
      missing: amounts by resource in base units (milli-CPU, bytes, devices), {} when no amount is missing.
      relaxation: the smallest change that admits the gang, in words; "" when none was found.
    """

    pod_group: str
    reason: str
    message: str
    missing: dict[str, int] = {}
    relaxation: str = ""


class Reservation(DecisionItem, frozen=True):
    """The earliest start that is kept for a gang, RFC 3339."""

    pod_group: str
    start: str


class Nomination(DecisionItem, frozen=True):
    """A node whose capacity is held for a pod."""

    namespace: str
    pod: str
    node: str


class Waiting(DecisionItem, frozen=True):
    """A gang held at Permit: who holds it, and until when (RFC 3339); its members' nodes are nominations."""

    pod_group: str
    plugin: str
    until: str


class SetAside(DecisionItem, frozen=True):
    """An object that could not be used."""

    file: str
    object: str
    field: str
    message: str


class TierAccount(DecisionItem, frozen=True):
    """What the solver reached in one tier, and what it could at most have reached."""

    share: str
    priority: int
    objective: float
    bound: float


class SolverAccount(DecisionItem, frozen=True):
    """The solver's account; `seconds` and `stages` are telemetry that the shell adds."""

    tiers: tuple[TierAccount, ...] = ()
    gap: float = 0.0
    guard: bool = False
    seconds: float = 0.0
    stages: dict[str, float] = {}


class Decision(DecisionItem, frozen=True):
    """What to bind, evict, hold and refuse. Lists are sorted, so that equal decisions are equal bytes."""

    assignments: tuple[Assignment, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    solver: SolverAccount = SolverAccount()


def without_telemetry(decision: Decision) -> Decision:
    """Return the decision as `replay` and "byte for byte" compare it: without what the shell added."""
    account = msgspec.structs.replace(decision.solver, seconds=0.0, stages={})
    return msgspec.structs.replace(decision, solver=account)


def to_json(decision: Decision) -> bytes:
    """Write a decision as `reference/api` has it, on one line."""
    return msgspec.json.encode(decision)
