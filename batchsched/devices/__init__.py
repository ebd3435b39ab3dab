"""Allocation of devices to ResourceClaims (Dynamic Resource Allocation), as in kube-scheduler (layer 3).

`inventory` finds the pools of a node, `selectors` evaluates CEL expressions, `ledger` records what is allocated, and
`allocator` searches one node for devices for the claims of a pod. Nothing here knows pods or plugins.
"""
