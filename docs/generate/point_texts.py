"""The effect of each answer at each extension point, for the page of a pod's life."""

from dataclasses import dataclass
from typing import Final

from batchsched.framework.status import Code


@dataclass(frozen=True, slots=True)
class PointText:
    """What the page says about an extension point.

    Args:
      called: when it is called, and about what.
      effects: code → effect; empty if the answer is not a status.
      answer: the answer and its effect, if it is not a status.
    """

    called: str
    effects: dict[Code, str]
    answer: str = ""


_OUT: Final = (
    "the pod has no node in this session; the other PreFilters are still called, the first refusal counts"
)
_SENT_BACK: Final = "Unreserve of all plugins is called in reverse order, and the gang is rolled back"

POINT_TEXTS: Final[dict[str, PointText]] = {
    "PreEnqueue": PointText(
        "before a pod enters the scheduling queue",
        {
            Code.SUCCESS: "the next plugin is called",
            Code.SKIP: "the same as Success",
            Code.UNSCHEDULABLE: "the pod stays outside the queue and uses no resources",
            Code.UNRESOLVABLE: "the same as Unschedulable",
            Code.PENDING: "the same as Unschedulable",
        },
    ),
    "QueueSort": PointText(
        "for each pending pod; a profile has one plugin",
        {},
        "a comparable key; the pods of a gang are placed in ascending order",
    ),
    "PreFilter": PointText(
        "once for each class of equal pods, before its Filters",
        {
            Code.SUCCESS: "the plugin's Filter is called; if the answer names nodes, all others are excluded",
            Code.SKIP: "the plugin's Filter is omitted for this class",
            Code.UNSCHEDULABLE: _OUT,
            Code.UNRESOLVABLE: "the same, but no other plugin is called; evictions cannot help",
        },
    ),
    "Filter": PointText(
        "once for each class, over all nodes at once",
        {},
        "the refused nodes with reasons; a node has the reasons of the first plugin that refuses it",
    ),
    "PostFilter": PointText(
        "if no node is feasible",
        {
            Code.SUCCESS: "evictions help, and no other plugin is called; the pod is nominated for the answer's node",
            Code.UNSCHEDULABLE: "the next plugin is called; the reasons become part of the message",
            Code.PENDING: "the same as Unschedulable",
            Code.UNRESOLVABLE: "only these reasons become part of the message, and no other plugin is called",
            Code.ERROR: "the same as UnschedulableAndUnresolvable",
        },
    ),
    "PreScore": PointText(
        "once for each class, with its feasible nodes",
        {
            Code.SUCCESS: "the plugin's Score is called",
            Code.SKIP: "the plugin's Score is omitted for this class",
        },
    ),
    "Score": PointText(
        "once for each class, over its feasible nodes",
        {},
        "one integer for each node; without NormalizeScore from 0 to 100",
    ),
    "NormalizeScore": PointText(
        "after the plugin's own Score",
        {},
        "integers from 0 to 100; the sum of weight times score ranks the nodes",
    ),
    "Constrain": PointText(
        "once for each problem, about all pods that may be placed; never if the solver is off",
        {},
        "rows for the solver's problem; they must not forbid what the pipeline allows",
    ),
    "Reserve": PointText(
        "for each pod with a chosen node",
        {
            Code.SUCCESS: "the next plugin is called",
            Code.UNSCHEDULABLE: _SENT_BACK,
            Code.UNRESOLVABLE: "the same as Unschedulable",
            Code.PENDING: "the same as Unschedulable",
        },
    ),
    "Unreserve": PointText(
        "if a reserved pod loses its node; in reverse order, for all plugins",
        {},
        "nothing; must be idempotent",
    ),
    "Permit": PointText(
        "for each reserved pod",
        {
            Code.SUCCESS: "the next plugin is called",
            Code.WAIT: "the pod stays assumed until it is allowed, at most for the seconds of the answer",
            Code.UNSCHEDULABLE: _SENT_BACK,
            Code.UNRESOLVABLE: "the same as Unschedulable",
            Code.PENDING: "the same as Unschedulable",
        },
    ),
    "PreBind": PointText(
        "for each allowed pod, before the binding is written",
        {
            Code.SUCCESS: "the next plugin is called",
            Code.SKIP: "the same as Success",
            Code.UNSCHEDULABLE: "the pod is not bound, and Unreserve is called",
            Code.UNRESOLVABLE: "the same as Unschedulable",
            Code.PENDING: "the same as Unschedulable",
        },
    ),
    "Bind": PointText(
        "one plugin after the other, until one binds the pod",
        {
            Code.SUCCESS: "the pod is bound",
            Code.SKIP: "the next plugin is called",
            Code.UNSCHEDULABLE: "the pod is not bound, and Unreserve is called",
            Code.UNRESOLVABLE: "the same as Unschedulable",
            Code.PENDING: "the same as Unschedulable",
        },
    ),
    "PostBind": PointText("after the pod was bound", {}, "nothing"),
}
