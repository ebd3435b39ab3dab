"""Conversion of the queues and topologies of Volcano, KAI-Scheduler and Kueue to objects of batchsched.

`convert` is the entry point. Each project has one module. A field without a counterpart causes a warning that names it.
"""
