"""Extenders at preemption and at binding, and what goes over the wire; sessions with them are in tests/service."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from batchsched.config.extenders import Extender
from batchsched.errors import ExtenderError
from batchsched.framework.extender_chain import ExtenderChain
from batchsched.framework.runtime.binding_cycle import BindingCycleInput, run_binding_cycle
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.status import SUCCESS
from batchsched.ports.external import ExtenderEndpoint, ExtenderReply
from tests.plugins.binder import Written
from tests.plugins.cluster import node as a_node
from tests.plugins.cluster import pod, table


class Said:
    """An extender with a configured answer."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, Any]] = []

    def send_request(self, endpoint: ExtenderEndpoint, verb: str, question: bytes) -> ExtenderReply:
        self.asked.append((verb, json.loads(question)))
        return (
            self.answer if isinstance(self.answer, ExtenderReply) else ExtenderReply(json.dumps(self.answer))
        )

    async def send_bind_request(
        self, endpoint: ExtenderEndpoint, verb: str, question: bytes
    ) -> ExtenderReply:
        return self.send_request(endpoint, verb, question)


def chain(answer: Any, **stated: Any) -> tuple[ExtenderChain, Said]:
    said = Said(answer)
    return ExtenderChain([Extender.model_validate({"urlPrefix": "http://x", **stated})], said), said


VICTIMS = {name: pod(name, on="n0") for name in ("low", "lower", "other")}
FOUND = {"n1": ((VICTIMS["other"],), 1), "n0": ((VICTIMS["low"], VICTIMS["lower"]), 0)}


def leaving(name):
    return {"n0": [VICTIMS["low"], VICTIMS["lower"]], "n1": [VICTIMS["other"]]}.get(name)


def uid(name):
    return VICTIMS[name].key


def agreed(answer, **stated):
    asked, said = chain(answer, preemptVerb="preempt", **stated)
    return asked.preempt(pod(), FOUND, leaving), said, asked


@pytest.mark.parametrize("by_uid", [True, False])
def test_extender_receives_victims_and_may_remove_nodes_and_victims(by_uid):
    answer = {"NodeNameToMetaVictims": {"n0": {"Pods": [{"UID": uid("lower")}], "NumPDBViolations": 2}}}
    left, said, _ = agreed(answer, nodeCacheCapable=by_uid)
    assert left == {"n0": ((VICTIMS["lower"],), 2)}
    ((verb, question),) = said.asked
    assert verb == "preempt"
    by_node = question["NodeNameToMetaVictims" if by_uid else "NodeNameToVictims"]
    assert set(question) == {"Pod", "NodeNameToMetaVictims" if by_uid else "NodeNameToVictims"}
    assert by_node["n1"]["NumPDBViolations"] == 1
    first = by_node["n0"]["Pods"][0]
    assert (first["UID"] if by_uid else first["metadata"]["name"]) == (uid("low") if by_uid else "low")


def test_nodes_keep_their_search_order():
    answer = {
        "nodenametometavictims": {
            "n0": {"pods": [{"uid": uid("low")}]},
            "n1": {"pods": [{"uid": uid("other")}]},
        }
    }
    assert list(agreed(answer)[0]) == ["n1", "n0"]


def test_empty_answer_of_an_extender_leaves_no_node():
    assert agreed({})[0] == {}


@pytest.mark.parametrize(
    "answer, problem",
    [
        ({"NodeNameToMetaVictims": {"n9": {}}}, "named the node 'n9', which does not exist"),
        ({"NodeNameToMetaVictims": {"n0": {"Pods": [{"UID": "?"}]}}}, "names the victim '\\?'"),
        ({"NodeNameToMetaVictims": {"n0": {"Pods": []}}}, "at least one victim pod on node 'n0'"),
        ({"NodeNameToMetaVictims": [1]}, "is no answer"),
        ({"NodeNameToMetaVictims": {"n0": {"Pods": [1]}}}, "is no answer"),
        (ExtenderReply(fault="gone"), "gone"),
    ],
)
def test_invalid_victims_are_an_error_of_the_extender(answer, problem):
    with pytest.raises(ExtenderError, match=f"extender http://x failed in PostFilter: .*{problem}"):
        agreed(answer)


def test_invalid_victims_of_an_ignorable_extender_are_ignored():
    left, _, asked = agreed({"NodeNameToMetaVictims": {"n9": {}}}, ignorable=True)
    assert left == FOUND
    assert list(asked.ignored.values()) == ["http://x"]
    assert agreed({"NodeNameToMetaVictims": {"n0": {"Pods": []}}}, ignorable=True)[0] == {}


def bound(answer, **stated):
    asked, said = chain(answer, bindVerb="bind", **stated)
    written = Written()
    cycle = BindingCycleInput(table([a_node("n0")]), written)

    class Plugin:
        name = "Plugin"
        called = False

        async def bind(self, pod, node, cycle):
            type(self).called = True
            return SUCCESS

    plugin = Plugin()
    pipeline = Pipeline([plugin], extenders=asked)
    return asyncio.run(run_binding_cycle(pipeline, pod("p"), "n0", cycle)), said, plugin


def test_extender_binds_in_place_of_the_plugins():
    status, said, plugin = bound({})
    assert status.ok
    assert not plugin.called
    wish = pod("p")
    assert said.asked == [
        ("bind", {"PodName": "p", "PodNamespace": wish.namespace, "PodUID": wish.metadata.uid, "Node": "n0"})
    ]


@pytest.mark.parametrize("answer", [{"Error": "taken"}, ExtenderReply(fault="taken")])
def test_failed_bind_of_an_extender_is_an_error_unless_it_is_ignorable(answer):
    with pytest.raises(ExtenderError, match="extender http://x failed in Bind: taken"):
        bound(answer)
    status, _, plugin = bound(answer, ignorable=True)
    assert status.ok
    assert plugin.called


def test_extender_does_not_bind_pods_without_its_managed_resources():
    _, said, plugin = bound({}, managedResources=[{"name": "example.com/x"}])
    assert plugin.called
    assert said.asked == []


def test_chain_without_extenders_is_interested_in_no_pod():
    assert not ExtenderChain()
    assert not ExtenderChain().is_interested(pod())
    assert len(chain({})[0]) == 1


def test_an_extender_without_a_filter_verb_is_skipped_and_the_next_one_filters():
    said = Said({"NodeNames": ["n1"]})
    silent = {"urlPrefix": "http://silent", "preemptVerb": "preempt"}
    asked = {"urlPrefix": "http://asked", "filterVerb": "filter", "nodeCacheCapable": True}
    extenders = ExtenderChain([Extender.model_validate(one) for one in (silent, asked)], said)
    ((prefix, verdict),) = extenders.filter(pod(), np.ones(2, np.bool_), table([a_node("n0"), a_node("n1")]))
    assert prefix == "http://asked"
    assert verdict.refused.any(axis=0).tolist() == [True, False]


def test_an_extender_that_failed_three_times_in_a_row_is_no_longer_called():
    asked, said = chain("no node list", filterVerb="filter", ignorable=True)
    made = table([a_node("n0")])
    for _ in range(5):
        assert asked.filter(pod(), np.ones(1, np.bool_), made) == []
    assert len(said.asked) == 3
