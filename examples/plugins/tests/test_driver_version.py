"""DriverVersion, through a whole session."""

import pytest
from site_cluster import Schedule, node, pod, registry

from batchsched.api.decision import Decision
from batchsched.config.schema import Profile
from batchsched.errors import InvalidInput


def places(decision: Decision) -> dict[str, str]:
    return {one.pod: one.node for one in decision.assignments}


def test_gpu_pod_goes_to_the_newest_driver(schedule: Schedule) -> None:
    nodes = [node("old", **{"driver-version": "535"}), node("new", **{"driver-version": "570"})]
    assert places(schedule(nodes, [pod("train", gpu="1")])) == {"train": "new"}


def test_gpu_pod_waits_when_every_driver_is_too_old_and_is_told_so(schedule: Schedule) -> None:
    nodes = [
        node("old", **{"driver-version": "470"}),
        node("strange", **{"driver-version": "new"}),
        node("none"),
    ]
    decision = schedule(nodes, [pod("train", gpu="1")], minimum=550)
    assert places(decision) == {}
    assert "node(s) had a driver older than 550" in decision.refusals[0].message


def test_pod_without_a_gpu_does_not_care(schedule: Schedule) -> None:
    assert places(schedule([node("old")], [pod("web", cpu="1")])) == {"web": "old"}


@pytest.mark.parametrize("args, field", [({"minimum": -1}, "args.minimum"), ({"minimun": 5}, "args.minimun")])
def test_argument_that_cannot_be_is_refused_with_its_field(args: dict[str, object], field: str) -> None:
    stated = {"plugins": {"enabled": [{"name": "DriverVersion"}]}}
    profile = Profile.model_validate(stated | {"pluginConfig": [{"name": "DriverVersion", "args": args}]})
    with pytest.raises(InvalidInput) as caught:
        registry().create_pipeline(profile)
    assert caught.value.object == "plugin DriverVersion"
    assert caught.value.field == field
