"""The scheduling queue: pending entities, why they are pending, and the events that move them.

An entity is a gang, or a pod without a PodGroup. `queue` is the interface; `entity` defines the data of an entity, its
states and the moves between them. `backoff` holds entities that will be tried again, and `queueing_hints`
evaluates which entities an event may help.

The queue has no clock: every call takes the time as an argument.

Source: kube-scheduler's backend/queue, 1.36.
"""
