"""Preemption and reclaim: which pods are evicted for gangs that fit nowhere, and what is kept for these gangs.

`candidates` lists the gangs that may be evicted and what each eviction costs, `eligibility` decides which gang may
evict which, `victim_selection` chooses the victims, and `nominated` keeps their room for the gangs nominated for it.
`pod_preemption` is the variant without the solver: PostFilter plugins choose the victims, pod by pod.
"""
