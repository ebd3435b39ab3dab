"""PodGroups of other projects, and their conversion to batchsched PodGroups. No other package converts them.

Each project has a module: coscheduling, Kubernetes, Volcano and KAI. The module reads the PodGroups of the project,
and the labels and annotations by which pods join them. `conversion` lists the kinds and converts. A hard constraint
without a counterpart, such as `networkTopology` of Volcano, is never dropped: the converted PodGroup names its field
in the annotation `UNSUPPORTED_FIELD`, and its gang is refused.
"""
