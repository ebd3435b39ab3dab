"""Floor 3: allocation of devices to ResourceClaims (Dynamic Resource Allocation), as kube-scheduler allocates them.

`inventory` finds the pools of a node, `selectors` evaluates CEL expressions, `ledger` records what is allocated, and
`allocator` searches one node for devices for the claims of a pod. Nothing here knows pods or plugins.
"""
