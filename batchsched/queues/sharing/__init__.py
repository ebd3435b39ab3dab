"""Sharing policies: how the children of a queue share its capacity. All policies implement one protocol.

`sibling_queues` defines the input of a policy, and `water_filling` the division by rising levels. `policy` contains the
protocol and the simple policies, and finds policies by name among the entry points `batchsched.queue_policies`.
"""
