"""Our kinds on a real API server: they are served, fill in defaults, and refuse what means nothing, saying why."""

import pytest

from batchsched.api.crd.queue import Queue
from batchsched.queues.tree import QueueTree
from tests.controlplane.objects import custom
from tests.controlplane.plane import ApiFault

API = "scheduling.batchsched.dev/v1alpha1"
PLURALS = {"PodGroup": "podgroups", "Queue": "queues", "Topology": "topologies"}
RACKS = [{"name": "rack", "nodeLabel": "example.com/rack"}]


def path(namespace, kind, name=""):
    if kind == "PodGroup":
        return namespace.path("podgroups", name, group=API)
    return f"/apis/{API}/{PLURALS[kind]}" + (f"/{name}" if name else "")


def put(namespace, kind, spec, name=""):
    """Make an object that nothing else sees."""
    body = custom(kind, name or namespace.name, **spec)
    return namespace.api.create(f"{path(namespace, kind)}?dryRun=All&fieldValidation=Strict", body)


@pytest.mark.parametrize("kind", PLURALS)
def test_kind_is_established(plane, kind):
    where = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    found = plane.admin.get(f"{where}/{PLURALS[kind]}.scheduling.batchsched.dev")
    said = {one["type"]: one["status"] for one in found["status"]["conditions"]}
    assert said["Established"] == said["NamesAccepted"] == "True"
    assert "NonStructuralSchema" not in said


def test_defaults_are_filled_in(namespace):
    spec = put(namespace, "PodGroup", {"minMember": 2})["spec"]
    assert spec["scheduleTimeoutSeconds"] > 0
    assert spec["strandedPolicy"] == "Complete"
    assert "queue" not in spec


def test_a_queue_gets_no_default_by_which_it_would_divide_the_cluster(namespace):
    spec = put(namespace, "Queue", {"limit": {"cpu": "4"}})["spec"]
    queue = Queue.model_validate({"metadata": {"name": "q"}, "spec": spec})
    assert (queue.spec.weight, queue.spec.priority) == (1, 0)
    assert not QueueTree([queue]).has_entitlements


@pytest.mark.parametrize(
    "kind, spec, field, words",
    [
        pytest.param("PodGroup", {"minMember": 0}, "spec.minMember", "greater than or equal to 1", id="none"),
        pytest.param("PodGroup", {"minMember": "two"}, "spec.minMember", "integer", id="text"),
        pytest.param("PodGroup", {"minMembers": 2}, "spec.minMembers", "unknown field", id="misspelt"),
        pytest.param(
            "PodGroup",
            {"minMember": 2, "strandedPolicy": "Wait"},
            "spec.strandedPolicy",
            '"Rollback"',
            id="policy",
        ),
        pytest.param(
            "PodGroup",
            {"minMember": 2, "subGroups": [{"name": "a", "minMember": 2}, {"name": "b", "minMember": 1}]},
            "spec.minMember",
            "less than the subGroups' sum",
            id="subgroups",
        ),
        pytest.param(
            "PodGroup",
            {"minMember": 2, "minResources": {"cpu": "much"}},
            "spec.minResources",
            "cpu",
            id="quantity",
        ),
        pytest.param(
            "Queue",
            {"guarantee": {"cpu": "8"}, "limit": {"cpu": "4"}},
            "spec.guarantee",
            "above the limit can never be used",
            id="guarantee",
        ),
        pytest.param(
            "Queue",
            {"lendingLimit": {"cpu": "8"}},
            "spec.lendingLimit",
            "lends of its guarantee",
            id="lending",
        ),
        pytest.param("Queue", {"weight": -1}, "spec.weight", "greater than", id="weight"),
        pytest.param("Topology", {"levels": []}, "spec.levels", "at least 1", id="levels"),
        pytest.param("Topology", {"levels": [*RACKS, *RACKS]}, "spec.levels", "uplicate", id="twice"),
    ],
)
def test_invalid_object_is_refused_with_its_field_and_the_reason(namespace, kind, spec, field, words):
    with pytest.raises(ApiFault) as refused:
        put(namespace, kind, spec)
    assert refused.value.status in (400, 422)
    assert field in str(refused.value)
    assert words in str(refused.value).replace("\\", "")


def test_queue_that_is_its_own_parent_is_refused(namespace):
    with pytest.raises(ApiFault, match="cannot be its own parent; name another one"):
        put(namespace, "Queue", {"parent": namespace.name})


def test_gang_name_that_is_not_a_valid_label_value_is_refused(namespace):
    with pytest.raises(ApiFault, match="63 characters or less: pods name their PodGroup in a label"):
        put(namespace, "PodGroup", {"minMember": 2}, "x" * 64)


def test_levels_of_a_topology_are_immutable(namespace):
    namespace.topology(namespace.name, rack="example.com/rack")
    other = [{"name": "row", "nodeLabel": "example.com/row"}]
    with pytest.raises(ApiFault, match="make another Topology"):
        namespace.api.merge(path(namespace, "Topology", namespace.name), {"spec": {"levels": other}})
