"""Random clusters to ask both schedulers about: a case of any areas, a dict in the format of the recorded ones.

Everything follows from the seed. Objects are as an API server would store them: defaults filled in where the
scheduler relies on them, and nothing that validation refuses.
"""

from collections.abc import Callable
from typing import Final

from tests.conformance.draw import capacity, claims, neighbours, nodes, profiles, storage
from tests.conformance.draw.cluster import Draw, Json, base

AREAS: Final[dict[str, Callable[[Draw, Json], None]]] = {
    "devices": claims.devices,
    "images": nodes.images,
    "interpod": neighbours.interpod,
    "nodeaffinity": nodes.nodeaffinity,
    "nodename": nodes.nodename,
    "ports": nodes.ports,
    "preemption": capacity.preemption,
    "profile": profiles.profile,
    "resources": capacity.resources,
    "spread": neighbours.spread,
    "taints": nodes.taints,
    "volumes": storage.volumes,
}
"""What can be drawn, by the name of the recorded area."""


def case(seed: int, areas: tuple[str, ...] = (), without: frozenset[str] = frozenset()) -> Json:
    """Draw a case of these areas; if there are none, of one to four of all areas, except those in `without`."""
    draw = Draw(seed)
    chosen = areas or tuple(draw.sample(sorted(AREAS.keys() - without), draw.choice((1, 1, 2, 2, 3, 4))))
    drawn = base(draw)
    drawn["name"] = f"drawn-{seed}"
    drawn["note"] = ", ".join(chosen)
    # Preemption last: it nominates pods like those that are there by then.
    for area in sorted(chosen, key="preemption".__eq__):
        AREAS[area](draw, drawn)
    return {name: value for name, value in drawn.items() if value != []}
