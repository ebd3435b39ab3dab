"""How siblings in the queue tree share what their parent has: one policy a file, all behind one protocol.

`siblings` says what a policy may know, `policy` what it must answer, `filling` raises levels until a resource is
spent, `registry` finds policies by name among the entry points `batchsched.queue_policies`.
"""
