"""Owners of pods as their users write them."""

import msgspec

TEMPLATE = {"spec": {"schedulerName": "batchsched", "containers": [{"name": "main", "image": "none"}]}}
API = {
    "Job": "batch/v1",
    "StatefulSet": "apps/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "PyTorchJob": "kubeflow.org/v1",
    "TFJob": "kubeflow.org/v1",
    "MPIJob": "kubeflow.org/v2beta1",
    "RayCluster": "ray.io/v1",
    "RayJob": "ray.io/v1",
    "RayService": "ray.io/v1",
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "JAXJob": "kubeflow.org/v1",
    "XGBoostJob": "kubeflow.org/v1",
    "PaddleJob": "kubeflow.org/v1",
    "SparkApplication": "sparkoperator.k8s.io/v1beta2",
    "AppWrapper": "workload.codeflare.dev/v1beta2",
    "PodCliqueSet": "grove.io/v1alpha1",
    "Workflow": "argoproj.io/v1alpha1",
}


def owner(kind, name="train", owned_by=None, annotations=None, labels=None, status=None, **spec):
    meta = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-of-{kind}-{name}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": annotations or {},
        "labels": labels or {},
    }
    if owned_by is not None:
        meta["ownerReferences"] = [reference(owned_by)]
    return {
        "apiVersion": API[kind],
        "kind": kind,
        "metadata": meta,
        "spec": spec,
        **({"status": status} if status else {}),
    }


def reference(one):
    meta = one["metadata"]
    return {
        "apiVersion": one["apiVersion"],
        "kind": one["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }


def job(parallelism=None, completions=None, **more):
    stated = {"parallelism": parallelism, "completions": completions}
    spec = {key: value for key, value in stated.items() if value is not None}
    return owner("Job", **spec, template=TEMPLATE, **more)


def replicas(**counts):
    return {name: {"replicas": pods, "template": TEMPLATE} for name, pods in counts.items()}


def replicated(name, jobs=1, **spec):
    depends = spec.pop("dependsOn", None)
    found = {"name": name, "replicas": jobs, "template": {"spec": {"template": TEMPLATE, **spec}}}
    return found | ({"dependsOn": depends} if depends else {})


def jobset(*jobs, **spec):
    return owner("JobSet", replicatedJobs=list(jobs), **spec)


def pytorch(**spec):
    spec.setdefault("pytorchReplicaSpecs", replicas(Master=1, Worker=3))
    return owner("PyTorchJob", **spec)


def ray_spec(*groups, **spec):
    return {
        "headGroupSpec": {"rayStartParams": {}, "template": TEMPLATE},
        "workerGroupSpecs": list(groups),
        **spec,
    }


def workers(name="gpu", **spec):
    return {"groupName": name, "template": TEMPLATE, **spec}


def raw(one):
    return msgspec.json.encode(one)


def app_wrapper(*components, **more):
    return owner("AppWrapper", "wrapper", components=[{"template": one} for one in components], **more)


def clique(name, replicas=1, **spec):
    constraint = spec.pop("topologyConstraint", None)
    found = {"name": name, "spec": {"replicas": replicas, "podSpec": TEMPLATE["spec"], **spec}}
    return found | ({"topologyConstraint": constraint} if constraint else {})


def pod_clique_set(*cliques, groups=(), replicas=1, **template):
    stated = {"cliques": list(cliques), "podCliqueScalingGroups": list(groups), **template}
    return owner("PodCliqueSet", "llm", replicas=replicas, template=stated)


def spark(instances=2, **spec):
    return owner("SparkApplication", "pi", **{"executor": {"instances": instances}, "driver": {}, **spec})
