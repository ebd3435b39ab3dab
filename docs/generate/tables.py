"""Reference pages that are tables of the code: gang phases, refusal reasons, metrics, the scheduling queue."""

from collections.abc import Iterable
from typing import Final

from prometheus_client.metrics import MetricWrapperBase

from batchsched.api import gang
from batchsched.api.core.pod_field_limits import FIELD_LIMITS
from batchsched.api.decision import REASONS
from batchsched.observability.metrics import Metrics
from batchsched.scheduling_queue import entity

_GANG_LIFE: Final = """# Phases of a gang

A gang changes its phase only as this table says; any other change is a defect and is rejected. Reserved is a phase
within a session. The other phases appear in the status of the PodGroup.

![Phases of a gang: the changes of the table below as arrows](../assets/gang-phases.svg)

"""

_REASONS: Final = """# Why a gang was refused

Every refusal has one of these reasons. The list is closed: a new reason comes with a changelog entry.
`missing` is stated in base units: milli-CPU, bytes, devices.

"""

_LIMITS: Final = """
## Limits of a pod

A pending pod that states more than this is refused with the reason `PodSpecLimit`, and the message names the field, the
number and the limit. Its gang is refused with it; all other gangs are scheduled. The limits are far above those of real
workloads; they keep one namespace from making sessions slow for all others. Pods that are bound already have no limit.
This differs from kube-scheduler, which limits a pod only by the size of the object.

The containers of a pending pod may request at most 1 PiB of memory together, or 1.1e12 CPUs, devices or other units of
a resource. If a pod that is bound already requests more, it counts as if it requested this amount.

If the spec of such a pod is 16 KiB or larger, batchsched does not keep its containers and constraints. Recorded sessions
and dumps state the exceeded limit in their place.

"""

_METRICS: Final = """# Metrics

`batchsched run` serves these metrics under `/metrics` on its [secure port](configuration.md#serving), to users that
may read that path in the cluster. Names that begin with `scheduler_`, `rest_client_` and `leader_election_` are those of
kube-scheduler, so that its dashboards and alerts keep working. Names that begin with `batchsched_` are our own. The usual
`process_` and `python_info` metrics are served as well. A standby replica reports what it watches, but decides nothing.

"""

_QUEUE: Final = """# The scheduling queue

Pending pods are in one of four queues, as in kube-scheduler 1.36. A gang is one entity: its pods enter and leave the
queue together, and an event that may help one of its pods moves the whole gang. A pod without a PodGroup is a gang of
one.

- **Active**: entities to be scheduled next, in the order of the QueueSort plugin; with equal priority, namespaces
  share each session.
- **Backoff**: entities that are worth another attempt after a delay: 1 s after the first refusal, doubling up to 10 s.
  Errors that are not a refusal (a plugin that raised, a binding that failed) are counted separately and reset by the
  next refusal. As in kube-scheduler, time is divided into whole seconds, so the delay may be up to one second longer.
  If the active queue is empty, the next entity of the backoff queue is scheduled early, unless its last attempt ended
  with an error.
- **Unschedulable**: entities that were refused, and no event that may help them has occurred since. They are retried
  after five minutes in any case.
- **Gated**: PreEnqueue refuses all pods of the entity. It is retried only after an event that may help, according to
  the plugin that refused it.

An event (a node was added, a bound pod was deleted, a label changed) moves only those entities that a refusing plugin
says it may help. Each plugin registers [events](plugins.md) and may narrow them down with a queueing hint. If a plugin
registers no events or is unknown, every event moves the entities that it refused. Events that arrive while a gang is in
its scheduling cycle are kept and evaluated when the gang returns refused, so that no event is missed. A pod that joins a
gang, or a change of the spec of its PodGroup, always moves the gang.

The metric `scheduler_queue_incoming_pods_total` counts pods by queue and event; `scheduler_pending_pods` states how many
pods are in each queue.

![States of an entity: the moves of the table below as arrows](../assets/queue-states.svg)

An entity also leaves the queue when its last pod is deleted or has a node, from whatever state; the picture shows only
the arrow from "In flight".

"""


def gang_life() -> str:
    """Return the page of gang phases: the picture of the phases and the table of changes."""
    rows = [(start, change, end) for (start, change), end in gang.MOVES.items()]
    return _GANG_LIFE + _table(("phase", "change", "next phase"), rows)


def reasons() -> str:
    """Return the page of refusal reasons."""
    return (
        _REASONS
        + _table(("reason", "meaning"), ((f"`{reason}`", text) for reason, text in REASONS.items()))
        + _LIMITS
        + _table(
            ("field", "counted", "maximum"),
            (
                (f"`spec.{limit.field}`".replace(" and ", "`, `"), limit.noun, f"{limit.maximum:,}")
                for limit in FIELD_LIMITS
            ),
        )
    )


def metrics() -> str:
    """Return the page of metrics."""
    return _METRICS + _table(("metric", "type", "labels", "meaning"), map(_metric_row, Metrics().declared))


def scheduling_queue() -> str:
    """Return the page of the scheduling queue: its states, their picture and the table of moves."""
    rows = [(start, end, condition) for (start, end), condition in entity.MOVES.items()]
    return _QUEUE + _table(("from", "to", "when"), rows)


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in rows)]) + "\n"


def _metric_row(metric: MetricWrapperBase) -> tuple[str, ...]:
    (described,) = metric.describe()
    name = described.name + ("_total" if described.type == "counter" else "")
    labels = ", ".join(f"`{label}`" for label in metric._labelnames)
    return f"`{name}`", described.type, labels, described.documentation
