"""The pod grouper: gangs for the pods of Jobs, JobSets, training jobs, Ray clusters and similar owners.

`rules` derives the template of an owner's PodGroups from its JSON. `grouper` assigns pods to gangs as pods and
owners change, and `pod_group_writer` writes PodGroups and labels to the API.
"""
