"""Scenarios that run in a second."""

import json

from batchsched.lab.scenario import Scenario

QUEUES = [
    {"metadata": {"name": "a"}, "spec": {"guarantee": {"nvidia.com/gpu": 16}}},
    {"metadata": {"name": "b"}, "spec": {"guarantee": {"nvidia.com/gpu": 8}}},
]


def stated(**more):
    """A scenario as a file states it."""
    return {
        "name": "small",
        "cluster": {"nodes": 4, "gpusPerNode": 8},
        "queues": QUEUES,
        "workloads": [
            {"name": "drawn", "generate": {"gangs": 20, "load": 4.0, "shares": {"a": 0.5, "b": 0.5}}}
        ],
        "profile": {"selection": "ordered", "backfill": "easy"},
        "policies": [
            {"name": "fcfs", "profile": {"policy": {"name": "fcfs"}}},
            {"name": "sjf", "profile": {"policy": {"name": "sjf"}, "backfill": "none", "blocking": True}},
        ],
        "seeds": 2,
        **more,
    }


def scenario(**more):
    return Scenario.model_validate(stated(**more))


def written(path, **more):
    path.write_text(json.dumps(stated(**more)), "utf-8")
    return path
