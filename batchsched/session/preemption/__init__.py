"""Preemption and reclaim: which pods are evicted for gangs that fit nowhere, and which room is kept for them.

`eligibility` lists the gangs that may be evicted, states what each eviction costs, and decides which gang may evict
which. `protection` decides which running gangs are protected. `victim_selection` chooses the victims, and `nominated`
keeps their room for the nominated pods. `pod_preemption` is the variant without the solver: PostFilter plugins choose
the victims, pod by pod.
"""
