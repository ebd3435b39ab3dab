"""Refusals of a session as the scheduling queue takes them: who refused, and what may help where no plugin did.

A session says in one reason why a whole gang was not placed. Where nodes were short any plugin that judges nodes may
have had its part, so all of them are asked about events. Where the session itself refused, the reason stands in for a
plugin.
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
    # Its own PodGroup, and members that join, bring a gang back by themselves.
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
"""By reason, the events that may help where the session itself refused."""

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
"""Reasons in which any plugin that judges nodes or placements may have its part."""


EXTENDERS: Final = "Extenders"
"""Stands for all extenders: what may change their minds nobody knows, so that every event may."""


def rejection_of(refusal: Refusal, pipeline: Pipeline) -> Rejection:
    """Return who refused a gang, for the scheduling queue.

    A plugin that broke refused nothing: the gang backs off and tries again. Gangs that were out of turn or outside the
    window have a reason that no event is registered for, so that every event brings them back.
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
