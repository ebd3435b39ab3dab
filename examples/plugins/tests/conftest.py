"""One session over a small cluster, with both plugins enabled."""

import pytest
from site_cluster import Schedule, registry

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.session.session import Session

BOTH = [{"name": "DriverVersion", "weight": 5}, {"name": "NodeOwner", "weight": 5}]


@pytest.fixture(params=[True, False], ids=["solver", "pod-by-pod"])
def schedule(request: pytest.FixtureRequest) -> Schedule:
    """Decide one session, with the solver and without: a plugin must mean the same."""

    def decide(nodes: list[Node], pods: list[Pod], **args: object) -> Decision:
        profile = Profile.model_validate(
            {
                "solver": {"enabled": request.param},
                "plugins": {"enabled": BOTH},
                "pluginConfig": [{"name": "DriverVersion", "args": args}],
            }
        )
        snapshot = Snapshot(nodes=tuple(nodes), pods=tuple(pods))
        return Session(snapshot, profile, registry().create_pipeline(profile)).decide(
            now=1_700_000_000.0, seed=0
        )

    return decide
