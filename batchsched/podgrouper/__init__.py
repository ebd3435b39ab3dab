"""The pod grouper: gangs for the pods of Jobs, JobSets, training jobs, Ray clusters and similar owners.

`rules` has pure functions from an owner as JSON to the needs of its gang. `grouper` assigns pods to
gangs as pods and owners change, and `projection` writes PodGroups and labels to the API.
"""
