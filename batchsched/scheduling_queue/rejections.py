"""Converts the refusals of a session to rejections of the scheduling queue.

A session states one reason for a whole gang. If nodes were insufficient, any Filter plugin may be involved, so the
hints of all of them are evaluated. If the session itself refused, the reason takes the place of a plugin name.
"""

from collections.abc import Mapping
from typing import Final

from batchsched.api.decision import Refusal
from batchsched.framework.events import Action, ClusterEventWithHint, Resource
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.runtime.plugin_call import name_of
from batchsched.scheduling_queue.entity import Rejection

_CAME_OR_CHANGED: Final = Action.ADD | Action.UPDATE

HELPS: Final[Mapping[str, tuple[ClusterEventWithHint, ...]]] = {
    "NoNodes": (ClusterEventWithHint.on(Resource.NODE, Action.ADD),),
    # Changes of its own PodGroup and additional pods move a gang without a hint.
    "PodGroupNotFound": (),
    "NotEnoughPods": (ClusterEventWithHint.on(Resource.TARGET_POD, Action.UPDATE_POD_LABEL),),
    "QueueNotFound": (ClusterEventWithHint.on(Resource.QUEUE, _CAME_OR_CHANGED),),
    "UnknownTopologyLevel": (ClusterEventWithHint.on(Resource.TOPOLOGY, _CAME_OR_CHANGED),),
    "Gated": (ClusterEventWithHint.on(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED),),
    "QueueLimit": (
        ClusterEventWithHint.on(Resource.QUEUE, Action.ALL),
        ClusterEventWithHint.on(Resource.ASSIGNED_POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN),
        ClusterEventWithHint.on(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN),
        ClusterEventWithHint.on(Resource.POD_GROUP, Action.DELETE | Action.UPDATE),
    ),
    "InsufficientTopologyCapacity": (
        ClusterEventWithHint.on(Resource.TOPOLOGY, Action.ALL),
        ClusterEventWithHint.on(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
    ),
}
"""Events that may help, by the reason with which the session itself refused."""

SHORT_OF_NODES: Final = frozenset(
    {
        "NoFeasibleNode",
        "InsufficientResources",
        "InsufficientTopologyCapacity",
        "PluginConstraint",
        "PermitRejected",
        "PermitTimeout",
    }
)
"""Reasons in which any plugin that filters nodes or checks placements may be involved."""


EXTENDERS: Final = "Extenders"
"""Stands for all extenders. Which events change their answers is unknown, so every event may help."""


def rejection_of(refusal: Refusal, pipeline: Pipeline) -> Rejection:
    """Return the rejection of a refused gang.

    After an error of a plugin the rejection is empty: the gang backs off and is retried. The reasons `OutOfTurn` and
    `OutsideWindow` have no registered events, so every event moves such gangs.
    """
    if refusal.reason == "PluginFailed":
        return Rejection()
    plugins: set[str] = set()
    if refusal.reason in SHORT_OF_NODES:
        judging = (*pipeline.prefilters, *pipeline.filters, *pipeline.reserves, *pipeline.permits)
        plugins |= {name_of(one) for one in judging}
        if pipeline.extenders:
            plugins.add(EXTENDERS)
    if refusal.reason in HELPS or not plugins:
        plugins.add(refusal.reason)
    return Rejection(frozenset(plugins))
