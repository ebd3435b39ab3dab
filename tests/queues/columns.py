"""Gangs as policies see them, in few words."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from batchsched.queues.gang_order import GangColumns

DAY = 86400.0


def columns(*gangs: dict[str, Any]) -> GangColumns:
    """Columns of gangs that state what differs: created at 0, no estimate, one pod, a tenth of the cluster."""
    usual = {"priority": 0, "created": 0.0, "estimate": float("nan"), "size": 1.0, "share": 0.1}
    stated = [usual | {"arrival": at} | one for at, one in enumerate(gangs)]

    def whole(name: str) -> np.ndarray:
        return np.array([one[name] for one in stated], np.int64)

    def real(name: str) -> np.ndarray:
        return np.array([one[name] for one in stated], np.float64)

    return GangColumns(
        priority=whole("priority"),
        created=real("created"),
        estimate=real("estimate"),
        size=real("size"),
        share=real("share"),
        arrival=whole("arrival"),
    )


GANGS = st.lists(
    st.fixed_dictionaries(
        {
            "priority": st.integers(-5, 5),
            "created": st.floats(0, 20 * DAY),
            "estimate": st.one_of(st.just(float("nan")), st.floats(0, 10 * DAY)),
            "size": st.integers(1, 64),
            "share": st.floats(0.001, 1),
            "arrival": st.integers(0, 99),
        }
    ),
    max_size=6,
)
