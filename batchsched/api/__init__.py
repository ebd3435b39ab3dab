"""Frozen values that all other packages use (layer 1).

Quantities, labels, nodes, pods, PodGroups, queues, topologies, the Snapshot and the Decision. A value is validated
when it is created and never changes; equal values are interchangeable. Quantities are integers in base units
(milli-CPU, bytes, devices), so that no sum depends on its order.

May import: ``errors``. Contains no I/O, no clock and no solver.
"""
