"""The scheduling queue: who waits, why, and what brings them back.

A gang waits and moves as one, a pod without a PodGroup as a gang of one. `queue` is the whole; `places` says where an
entity may be and how it gets there, `entity` what is known of it. `active` and `backoff` hold those that will be tried
again, `unschedulable` those that wait for an event. `gates` asks PreEnqueue, `hints` asks the plugins about events,
`flights` keeps events that come in while an entity is in its cycle, `nominations` the nodes that are kept free for
somebody. `refusals` says who refused what a session refused.

There is no clock: every call says what time it is.

Source: kube-scheduler's backend/queue, 1.36.
"""

from batchsched.scheduling_queue.backoff import BackoffPolicy
from batchsched.scheduling_queue.entity import Entity, Rejection
from batchsched.scheduling_queue.queue import SchedulingQueue
from batchsched.scheduling_queue.rejections import rejection_of
from batchsched.scheduling_queue.states import QueueState

__all__ = ["BackoffPolicy", "Entity", "QueueState", "Rejection", "SchedulingQueue", "rejection_of"]
