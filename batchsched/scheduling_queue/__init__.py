"""The scheduling queue: pending entities, why they are pending, and the events that move them.

An entity is a gang, or a pod without a PodGroup. `queue` is the interface; `states` defines the states of an entity
and the moves between them, `entity` its data. `active` and `backoff` hold entities that will be tried again,
`unschedulable` those that wait for an event. `gates` runs PreEnqueue plugins, `hints` evaluates queueing hints,
`in_flight` keeps events that arrive during a scheduling cycle, `nominator` records nominated nodes, and `rejections`
converts the refusals of a session.

The queue has no clock: every call takes the time as an argument.

Source: kube-scheduler's backend/queue, 1.36.
"""

from batchsched.scheduling_queue.backoff import BackoffPolicy
from batchsched.scheduling_queue.entity import Entity, QueueState, Rejection
from batchsched.scheduling_queue.hints import rejection_of
from batchsched.scheduling_queue.queue import SchedulingQueue

__all__ = ["BackoffPolicy", "Entity", "QueueState", "Rejection", "SchedulingQueue", "rejection_of"]
