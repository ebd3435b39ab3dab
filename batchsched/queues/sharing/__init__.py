"""Sharing policies: how the children of a queue share its capacity. One policy per file, behind one protocol.

`sibling_queues` defines the input of a policy, `policy` the protocol, `water_filling` the division by rising levels,
and `registry` finds policies by name among the entry points `batchsched.queue_policies`.
"""
