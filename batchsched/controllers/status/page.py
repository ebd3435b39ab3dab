"""The documentation's page of Events and conditions: what users see, and what it means."""

from dataclasses import dataclass
from typing import Final

from batchsched.api.decision import REASONS
from batchsched.controllers.status.controller import MOST, PERIOD
from batchsched.controllers.status.desired_status import CONDITION_REASONS, QUEUE_REASONS
from batchsched.controllers.status.event_recorder import ENDS, REFRESH
from batchsched.controllers.status.refusal_history import AGAIN, ARRIVING, LONGEST


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of Event.

    Args:
      about: what it is reported on.
      type: Normal or Warning.
      action: what was being done.
      meaning: what it says.
    """

    about: str
    type: str
    action: str
    meaning: str


EVENTS: Final = {
    "Scheduled": Kind(
        "Pod", "Normal", "Binding", "it was bound: `Successfully assigned team-a/bert-0 to node-1`"
    ),
    "FailedScheduling": Kind(
        "Pod", "Warning", "Scheduling", "it waits: `0/3 nodes are available: …`; or its binding was rejected"
    ),
    "Preempted": Kind(
        "Pod", "Normal", "Preempting", "it was evicted for a gang of higher priority, which is named"
    ),
    "Reclaimed": Kind(
        "Pod", "Normal", "Preempting", "it was evicted for a queue that is entitled to what it had"
    ),
    "Consolidated": Kind(
        "Pod", "Normal", "Preempting", "it was evicted to make room in one place; it finds another"
    ),
    "RolledBack": Kind(
        "Pod",
        "Normal",
        "Preempting",
        "its gang was half bound, and gives its places back by its `strandedPolicy`",
    ),
    "GangScheduled": Kind("PodGroup", "Normal", "Scheduling", "its minimum has its places"),
    "GangRefused": Kind(
        "PodGroup",
        "Warning",
        "Scheduling",
        "it waits: the reason in one word, what is missing, what would help",
    ),
}
"""By reason: closed, an addition is a changelog entry."""

_INTRODUCTION: Final = f"""# Events and conditions

What a running scheduler says of pods, PodGroups and Queues. Binding comes first: while pods are being bound, Events
and status wait, for a second each at most. Events that are left when the scheduler leaves are written before it ends,
after its Lease was given back.

```console
$ kubectl describe pod bert-0 -n team-a
$ kubectl events --for podgroup/bert -n team-a
$ batchsched get podgroups -n team-a -o wide
```

## Events

They are in kube-scheduler's words, in the API `events.k8s.io/v1`, and reported by the scheduler name of the first
profile. Repeats of one sentence are one Event whose `series` counts on, every {REFRESH:g} seconds at most, and
ends when it was not repeated for {ENDS / 60:g} minutes.

| reason | about | type | action | meaning |
|---|---|---|---|---|
"""
_SENTENCES: Final = f"""
Sessions may count otherwise from one second to the next ("12 cpu short", "11 cpu short"). A sentence about a gang
stands for {AGAIN:g} seconds before another one with the same reason takes its place, twice as long each time it
changes, up to {LONGEST:g} seconds; another reason waits a tenth of that. The last word always comes through. While a
gang is being made nobody is told for {ARRIVING:g} seconds that pods, or the PodGroup, are missing.

## Conditions

| object | condition | status and reasons |
|---|---|---|
| PodGroup | `Scheduled` | whether its minimum has its places |
| Queue | `Active` | whether it takes part |
| Pod | `PodScheduled` | `False`, reason `Unschedulable`, while it waits and was refused; Kubernetes says `True` |

Every {PERIOD:g} s up to {MOST} objects are written, gangs and queues before pods, so that ten thousand pods that wait
do not keep anybody from being bound. `lastTransitionTime` is that of the last change from `True` to `False` or back.
PodGroups of others (coscheduling, Kubernetes itself, Volcano, KAI) are read, and their status is left to those who
define it; their pods say why they wait.

### `Scheduled`

| status | reason | meaning |
|---|---|---|
"""
_NUMBERS: Final = """
## Status

| field | of | meaning |
|---|---|---|
| `phase` | PodGroup | where it is in [its life](gang-life.md) |
| `placed` | PodGroup | pods that have a node and have not ended; those that are being bound count |
| `running`, `succeeded`, `failed` | PodGroup | pods that run, and that ended |
| `queuePosition` | PodGroup | while it waits: 1 is first in the order of its queue's policy; every 5 s |
| `estimatedStartTime` | PodGroup | while it waits and places are kept for it: when they become free |
| `allocated`, `pending` | Queue | what its pods have, and how many gangs wait, with the queues below it |
| `fairShare` | Queue | what it is entitled to, with what is asked now; absent for policies that look at the past |
"""


def page() -> str:
    """Return the page as Markdown."""
    events = [
        f"| `{reason}` | {one.about} | {one.type} | `{one.action}` | {one.meaning} |"
        for reason, one in EVENTS.items()
    ]
    scheduled = [
        f"| {said} | `{reason}` | {meaning} |" for reason, (said, meaning) in CONDITION_REASONS.items()
    ]
    refused = [f"| False | `{reason}` | {meaning} |" for reason, meaning in REASONS.items()]
    queues = [f"| {said} | `{reason}` | {meaning} |" for reason, (said, meaning) in QUEUE_REASONS.items()]
    active = "\n### `Active`\n\n| status | reason | meaning |\n|---|---|---|\n"
    return (
        _INTRODUCTION
        + "\n".join(events)
        + "\n"
        + _SENTENCES
        + "\n".join(scheduled + refused)
        + "\n"
        + active
        + "\n".join(queues)
        + "\n"
        + _NUMBERS
    )
