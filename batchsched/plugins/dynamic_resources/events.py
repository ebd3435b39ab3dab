"""The cluster events that may help a pod that DynamicResources refused."""

from collections.abc import Sequence

from batchsched.api.core.device import ResourceClaim
from batchsched.api.core.pod import Pod
from batchsched.framework.events import Action, ClusterEventWithHint, EventResource, Hint, always_queue
from batchsched.plugins.dynamic_resources.reservation import may_use_devices


def helpful_events() -> Sequence[ClusterEventWithHint]:
    """Return the cluster events, with queueing hints, after which a pod refused by DynamicResources may fit.

    Source: `EventsToRegister` of kube-scheduler's plugins/dynamicresources, which has no event of a failed binding.
    """
    added_or_changed = Action.ADD | Action.UPDATE
    node_actions = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE
    return (
        ClusterEventWithHint.for_events(EventResource.NODE, node_actions),
        ClusterEventWithHint.for_events(
            EventResource.RESOURCE_CLAIM, added_or_changed | Action.DELETE, _claim_changed
        ),
        # What a pod reserved in memory is free again if it is not bound, and no claim shows that.
        ClusterEventWithHint.for_events(EventResource.ASSIGNED_POD, Action.DELETE, _pod_gone),
        ClusterEventWithHint.for_events(
            EventResource.TARGET_POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM, always_queue
        ),
        ClusterEventWithHint.for_events(EventResource.DEVICE_CLASS, added_or_changed),
        ClusterEventWithHint.for_events(EventResource.RESOURCE_SLICE, added_or_changed),
        ClusterEventWithHint.for_events(EventResource.DEVICE_TAINT_RULE, Action.ALL),
    )


def _pod_gone(_pod: Pod, old: Pod | None, _new: Pod | None) -> Hint:
    """Return QUEUE if the other pod, which is deleted or could not be bound, may have reserved devices."""
    return Hint.queue_if(old is not None and may_use_devices(old))


def _claim_changed(pod: Pod, old: ResourceClaim | None, new: ResourceClaim | None) -> Hint:
    """Return QUEUE if devices became free, or if the status of a claim of the pod changed."""
    freed = old is not None and old.status.allocation is not None
    if new is None:
        # A claim for extended resources of an earlier attempt keeps its pod from being placed until it is deleted.
        of_earlier_attempt = old is not None and old.extended_resource_pod_name_and_uid == (
            pod.name,
            pod.metadata.uid,
        )
        return Hint.queue_if(freed or of_earlier_attempt)
    if freed and new.status.allocation is None:
        return Hint.QUEUE
    if not _uses(pod, new):
        return Hint.SKIP
    return Hint.queue_if(old is None or old.status != new.status)


def _uses(pod: Pod, claim: ResourceClaim) -> bool:
    names = {entry.resource_claim_name for entry in pod.spec.resource_claims or ()}
    names |= {status.resource_claim_name for status in pod.status.resource_claim_statuses or ()}
    return pod.namespace == (claim.metadata.namespace or "default") and claim.metadata.name in names
