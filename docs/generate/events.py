"""The reference page of Events, conditions and status fields."""

from dataclasses import dataclass
from typing import Final

from batchsched.api.decision import NODE_REASONS, REASONS
from batchsched.controllers.desired_status import (
    CAP_REASONS,
    CONDITION_REASONS,
    PROTECTION_REASONS,
    QUEUE_REASONS,
)
from batchsched.controllers.event_recorder import REFRESH_SECONDS, SERIES_END_SECONDS
from batchsched.controllers.refusal_history import (
    ARRIVING_SECONDS,
    KEEP_SECONDS,
    MAX_KEEP_SECONDS,
    SURPLUS,
    SURPLUS_OVER_LIMIT,
    SURPLUS_REASONS,
    UNSCHEDULABLE,
)
from batchsched.controllers.set_aside_events import MAX_EVENTS_PER_NAMESPACE
from batchsched.controllers.set_aside_events import PERIOD_SECONDS as SET_ASIDE_PERIOD
from batchsched.controllers.status_controller import MAX_WRITES_PER_PERIOD, PERIOD_SECONDS


@dataclass(frozen=True, slots=True)
class EventDescription:
    """The description of an Event reason.

    Args:
      about: the kind of the object that the Event regards.
      type: Normal or Warning.
      action: the `action` field of the Event.
      meaning: when the Event is written.
    """

    about: str
    type: str
    action: str
    meaning: str


EVENTS: Final = {
    "Scheduled": EventDescription(
        "Pod", "Normal", "Binding", "the pod was bound: `Successfully assigned team-a/bert-0 to node-1`"
    ),
    "FailedScheduling": EventDescription(
        "Pod",
        "Warning",
        "Scheduling",
        "the pod is pending: `0/3 nodes are available: …`; or its binding was rejected",
    ),
    "Preempted": EventDescription(
        "Pod",
        "Normal",
        "Preempting",
        "the pod was evicted for a gang of higher priority; the message names the gang",
    ),
    "Reclaimed": EventDescription(
        "Pod", "Normal", "Preempting", "the pod was evicted for a queue that is entitled to its resources"
    ),
    "Consolidated": EventDescription(
        "Pod",
        "Normal",
        "Preempting",
        "the pod was evicted to consolidate free capacity; another node has capacity for it",
    ),
    "RolledBack": EventDescription(
        "Pod",
        "Normal",
        "Preempting",
        "its gang was partially bound, and its `strandedPolicy` releases the bound pods",
    ),
    "GangScheduled": EventDescription(
        "PodGroup", "Normal", "Scheduling", "minMember pods of the gang have nodes"
    ),
    "GangRefused": EventDescription(
        "PodGroup",
        "Warning",
        "Scheduling",
        "the gang is pending: the reason, the missing amounts, and a change that would help",
    ),
    "QueueKept": EventDescription(
        "PodGroup",
        "Warning",
        "Scheduling",
        "the owner of the PodGroup, such as a Job, names another queue; the gang keeps its queue as long as one of its "
        "pods has a node",
    ),
    "SetAside": EventDescription(
        "any kind",
        "Warning",
        "Validating",
        "the object is invalid, and batchsched ignores it until it is corrected; the message names the field. "
        f"At most {MAX_EVENTS_PER_NAMESPACE} Events of a namespace in {SET_ASIDE_PERIOD / 60:g} minutes",
    ),
    "SchedulerNameConflict": EventDescription(
        "Lease in `kube-public`",
        "Warning",
        "Scheduling",
        "another deployment schedules pods with the same `schedulerName`; the message names both",
    ),
    "PolicyChosen": EventDescription(
        "Lease in `kube-public`",
        "Normal",
        "Scheduling",
        "the policy `auto` uses another candidate from now on; the message states the figures of the forecast",
    ),
}
"""Event descriptions by reason. The list is closed: a new reason comes with a changelog entry."""

_INTRODUCTION: Final = f"""# Events and conditions

A running scheduler reports on pods, PodGroups and Queues. Bindings have precedence: while pods are being bound, each
write of an Event or a status is delayed by at most one second. At shutdown, the remaining Events are written after the
Lease was released.

```console
$ kubectl describe pod bert-0 -n team-a
$ kubectl events --for podgroup/bert -n team-a
$ batchsched get podgroups -n team-a -o wide
```

## Events

Events use the API `events.k8s.io/v1` and the wording of kube-scheduler. The reporting controller is the scheduler name of
the first profile. Repetitions of a message are one Event with a `series`; its count is updated every
{REFRESH_SECONDS:g} seconds at most. The series ends after {SERIES_END_SECONDS / 60:g} minutes without a repetition.

| reason | about | type | action | meaning |
|---|---|---|---|---|
"""
_SENTENCES: Final = f"""
The numbers in a message may change with every session ("12 cpu short", "11 cpu short"). A message about a gang is kept
for {KEEP_SECONDS:g} seconds before another message with the same reason replaces it. The time doubles with each change,
up to {MAX_KEEP_SECONDS:g} seconds; a message with another reason is delayed by a tenth of that time. The last message is always
written. For the first {ARRIVING_SECONDS:g} seconds of a gang, missing pods or a missing PodGroup are not reported.

## Conditions

| object | condition | status and reasons |
|---|---|---|
| PodGroup | `Scheduled` | whether minMember of its pods have nodes |
| PodGroup | `PriorityCapped`, `ProtectionLimited` | a setting of the PodGroup has no effect, or a limited one; absent otherwise |
| Queue | `Active` | whether the queue takes part in sessions |
| Pod | `PodScheduled` | `False` while the pod is pending and was refused, with one of [these reasons](#podscheduled); Kubernetes sets `True` |

Every {PERIOD_SECONDS:g} s, up to {MAX_WRITES_PER_PERIOD} objects are written, PodGroups and Queues before pods,
so that ten thousand pending pods do not delay bindings. `lastTransitionTime` is the time of the last change between `True` and `False`. PodGroups of other
projects (coscheduling, Kubernetes, Volcano, KAI) are read, but their status belongs to the controllers of these projects;
the conditions of their pods state why they are pending.

### `Scheduled`

| status | reason | meaning |
|---|---|---|
"""
_POD_SCHEDULED: Final = f"""
### `PodScheduled`

Cluster Autoscaler and Karpenter add nodes for pods with the reason `{UNSCHEDULABLE}`, whatever the message says. So pods
have this reason only if new nodes may help their gang. Pods that wait for something else, such as a queue limit, have the
reason of their gang's refusal. A pod with scheduling gates keeps the condition `SchedulingGated` that Kubernetes sets.

| status | reason | the gang was refused with | new nodes |
|---|---|---|---|
"""
_NUMBERS: Final = """
## Status

| field | of | meaning |
|---|---|---|
| `queue` | PodGroup | [the queue of the gang](../queues.md#the-queue-of-a-gang) |
| `phase` | PodGroup | the [phase of the gang](gang-life.md) |
| `placed` | PodGroup | pods that have a node and are not finished, including pods that are being bound |
| `running`, `succeeded`, `failed` | PodGroup | pods by phase |
| `queuePosition` | PodGroup | position while the PodGroup is pending: 1 is first in the order of the queue's policy; updated every 5 s |
| `estimatedStartTime` | PodGroup | time at which the reserved capacity becomes free, while the PodGroup is pending and has a reservation |
| `wholeSince` | PodGroup | time at which the minimum was bound, until all pods of the gang are gone: the gang is not rolled back |
| `partiallyBoundSince` | PodGroup | time since which the gang is partially bound: it is rolled back after `scheduleTimeoutSeconds` |
| `allocated`, `pending` | Queue | resources of its pods, and the number of pending gangs, including the queues below it |
| `fairShare` | Queue | the current entitlement, given the current demand; absent for policies that depend on past usage |
"""


def events() -> str:
    """Return the page as Markdown."""
    rows = [
        f"| `{reason}` | {one.about} | {one.type} | `{one.action}` | {one.meaning} |"
        for reason, one in EVENTS.items()
    ]
    scheduled = [
        f"| {said} | `{reason}` | {meaning} |" for reason, (said, meaning) in CONDITION_REASONS.items()
    ]
    refused = [f"| False | `{reason}` | {meaning} |" for reason, meaning in REASONS.items()]
    queues = [f"| {said} | `{reason}` | {meaning} |" for reason, (said, meaning) in QUEUE_REASONS.items()]
    capped = [f"| {said} | `{reason}` | {meaning} |" for reason, (said, meaning) in CAP_REASONS.items()]
    cap = "\n### `PriorityCapped`\n\n| status | reason | meaning |\n|---|---|---|\n"
    protected = [
        f"| {said} | `{reason}` | {meaning} |" for reason, (said, meaning) in PROTECTION_REASONS.items()
    ]
    protection = "\n### `ProtectionLimited`\n\n| status | reason | meaning |\n|---|---|---|\n"
    active = "\n### `Active`\n\n| status | reason | meaning |\n|---|---|---|\n"
    by_nodes = ", ".join(f"`{reason}`" for reason in REASONS if reason in NODE_REASONS)
    pods = [
        f"| False | `{UNSCHEDULABLE}` | {by_nodes} | may help |",
        f"| False | `{UNSCHEDULABLE}` | nothing: {SURPLUS_REASONS[SURPLUS]} | may help |",
        *(
            f"| False | `{reason}` | `{reason}` | do not help |"
            for reason in REASONS
            if reason not in NODE_REASONS
        ),
        f"| False | `{SURPLUS_OVER_LIMIT}` | nothing: {SURPLUS_REASONS[SURPLUS_OVER_LIMIT]} | do not help |",
    ]
    return (
        _INTRODUCTION
        + "\n".join(rows)
        + "\n"
        + _SENTENCES
        + "\n".join(scheduled + refused)
        + "\n"
        + _POD_SCHEDULED
        + "\n".join(pods)
        + "\n"
        + cap
        + "\n".join(capped)
        + "\n"
        + protection
        + "\n".join(protected)
        + "\n"
        + active
        + "\n".join(queues)
        + "\n"
        + _NUMBERS
    )
