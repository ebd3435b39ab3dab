"""What a profile changes: weights, and plugins that are off, everywhere or at one point."""

from typing import Final

from tests.conformance.draw.cluster import Draw, Json, profile_of

_SCORING: Final = (
    "ImageLocality",
    "InterPodAffinity",
    "NodeAffinity",
    "NodeResourcesBalancedAllocation",
    "NodeResourcesFit",
    "PodTopologySpread",
    "TaintToleration",
)
_REFUSING: Final = (
    "InterPodAffinity",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "NodeUnschedulable",
    "PodTopologySpread",
    "TaintToleration",
    "VolumeRestrictions",
    "VolumeZone",
)


def profile(draw: Draw, drawn: Json) -> None:
    """Give plugins other weights, and take some away."""
    points: Json = profile_of(drawn).setdefault("plugins", {})
    if draw.maybe(0.5):
        names = draw.some(_SCORING, 3)
        points["multiPoint"] = {"enabled": [{"name": name, "weight": draw.randint(1, 20)} for name in names]}
    off = ""
    if draw.maybe(0.3):
        off = draw.choice((*_REFUSING, "DefaultPreemption", "ImageLocality", "NodeVolumeLimits"))
        points.setdefault("multiPoint", {})["disabled"] = [{"name": off}]
    if draw.maybe(0.4):
        # Without its PreScore the original's Score breaks every pod.
        names = draw.some([name for name in _SCORING if name != off], 3)
        weighed = [{"name": name, "weight": draw.randint(1, 9)} for name in names if draw.maybe(0.6)]
        disabled = [{"name": name} for name in names] if draw.maybe(0.7) else [{"name": "*"}]
        points["score"] = {"enabled": weighed, "disabled": disabled}
    if draw.maybe(0.3):
        points["filter"] = {"disabled": [{"name": name} for name in draw.some(_REFUSING, 2)]}
