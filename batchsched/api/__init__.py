"""Floor 1: the frozen values that everything else talks about.

Quantities, labels, nodes, pods, PodGroups, queues, topology, the snapshot and the decision. A value is
made once, checked where it is made, and never changed; two equal values are interchangeable. Quantities
are integers in base units (milli-CPU, bytes, devices), so that no sum depends on its order.

May import: ``errors``. Knows nothing of files, clocks or solvers.
"""
