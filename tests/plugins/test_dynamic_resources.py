import msgspec
import pytest
from pydantic import ValidationError

from batchsched.api.core.device import DeviceClass, DeviceClassSpec, ResourceClaim
from batchsched.api.core.metadata import ObjectMeta, parse_timestamp
from batchsched.api.snapshot import Snapshot
from batchsched.framework.constrain import CandidatePods, CandidateSet
from batchsched.framework.cycle_state import CycleState
from batchsched.framework.nodes.node_table import LEADING, NodeTable
from batchsched.framework.preemption import Nominations, PreemptionHandle, run_postfilters
from batchsched.framework.runtime.pipeline import Pipeline
from batchsched.framework.status import Code, PreFilterAnswer, Status
from batchsched.plugins.dynamic_resources import DynamicResources
from batchsched.plugins.dynamic_resources.arguments import DynamicResourcesArgs
from batchsched.plugins.dynamic_resources.extended_resources import extended_resource_claim_key
from tests.devices import objects as devices
from tests.plugins.cluster import class_of, node, pod, refusals, table


class Refuses:
    """A PreFilter that refuses every pod."""

    name = "Refuses"

    def __init__(self, code):
        self.code = code

    def prefilter(self, pod, nodes, state):
        return PreFilterAnswer(Status(self.code, ("no",)))


def made_room(*plugins, version="1.36"):
    made, pipeline = table([node("a")], version=version), Pipeline(plugins)
    wish = class_of(made, pod())
    return run_postfilters(
        PreemptionHandle(
            pipeline, wish, made, pipeline.find_nodes_that_pass_filters(wish, made), Nominations({})
        )
    )


def test_a_pod_without_claims_skips_the_filter_and_scores_nothing():
    made = table([node("a"), node("b")])
    answer = DynamicResources().prefilter(class_of(made, pod()), made.all_nodes_view(), CycleState())
    assert answer.status.code is Code.SKIP
    state = CycleState()
    assert DynamicResources().prescore(class_of(made, pod()), made.all_nodes_view(), state).code is Code.SKIP
    assert DynamicResources().signature(pod()) == DynamicResources().signature(pod(nodeName="a"))


def test_postfilter_finds_no_claims_to_deallocate():
    answer = made_room(DynamicResources())
    assert answer.status == Status(Code.UNSCHEDULABLE, ("no new claims to deallocate",), "DynamicResources")


def test_postfilter_of_1_37_states_no_reason_for_a_pod_without_claims():
    answer = made_room(DynamicResources(), version="1.37")
    assert answer.status == Status(Code.UNSCHEDULABLE, (), "DynamicResources")


def test_postfilter_returns_the_error_of_kube_scheduler_after_an_unresolvable_prefilter():
    answer = made_room(Refuses(Code.UNRESOLVABLE), DynamicResources())
    assert answer.status == Status(Code.ERROR, ("not found",), "DynamicResources")


def test_postfilter_answers_after_an_unschedulable_prefilter():
    assert made_room(Refuses(Code.UNSCHEDULABLE), DynamicResources()).status.plugin == "DynamicResources"


def test_a_node_must_name_extended_resources_that_only_device_plugins_serve():
    served = DeviceClass(
        metadata=ObjectMeta(name="gpu"), spec=DeviceClassSpec(extended_resource_name="example.com/gpu")
    )
    made = table([node("a"), node("b", {"example.com/fpga": "0"})], device_classes=[served])
    both = pod(requests={"example.com/gpu": "1", "example.com/fpga": "1"})
    assert refusals(DynamicResources(), both, made) == {
        "a": ("cannot fit resource",),
        "b": ("cannot allocate all claims",),
    }


def pod_with_claim(name, count, **constraints):
    """A pod and its claim for some devices, created from a template for the pod."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}", "controller": True}
    claim = devices.claim(
        f"{name}-claim",
        devices.request(count=count),
        devices={"constraints": [constraints]} if constraints else {},
        metadata={"ownerReferences": [owner]},
    )
    entries = [{"name": "r", "resourceClaimTemplateName": f"template-{count}"}]
    statuses = [{"name": "r", "resourceClaimName": f"{name}-claim"}]
    asking = pod(name, resourceClaims=entries)
    metadata = msgspec.structs.replace(asking.metadata, uid=f"uid-{name}")
    status = msgspec.convert({"resourceClaimStatuses": statuses}, type(asking.status))
    return msgspec.structs.replace(asking, metadata=metadata, status=status), claim


def test_rows_count_claims_with_equal_devices_by_value():
    """Of 3 and 3 devices, one claim for 2 and one for 3 get equal ones, and no two claims for 3 and no claim for 4."""
    roots = [devices.gpu(f"d{n}", attributes={"root": {"int": n // 3}}) for n in range(6)]
    asking = [
        pod_with_claim(f"p{count}", count, matchAttribute=f"{devices.DRIVER}/root") for count in (2, 3, 4)
    ]
    snapshot = Snapshot(
        nodes=(node("a"),),
        resource_slices=(devices.slice_of("a", roots),),
        device_classes=(devices.device_class(),),
        resource_claims=tuple(claim for _, claim in asking),
    )
    made = NodeTable(snapshot, LEADING)
    batch = CandidateSet(
        [CandidatePods(n, class_of(made, one), n, 4, False) for n, (one, _) in enumerate(asking)]
    )
    rows = DynamicResources().constrain(batch, made.all_nodes_view())

    def admitted(*pods):
        return all(sum(row.class_coefficients(3) * pods) <= row.right[0] for row in rows)

    assert admitted(2, 0, 0)
    assert admitted(1, 1, 0)
    assert admitted(0, 2, 0)
    assert not admitted(3, 0, 0)
    assert not admitted(2, 1, 0)
    assert not admitted(0, 0, 1)


@pytest.mark.parametrize("timeout, accepted", [("10m0s", False), ("1h", True)])
def test_devices_that_are_not_prepared_within_the_binding_timeout_refuse_their_pod(timeout, accepted):
    device = {
        "driver": devices.DRIVER,
        "pool": "a",
        "device": "gpu-0",
        "bindingConditions": ["example.com/ready"],
    }
    allocation = {"devices": {"results": [device]}, "allocationTimestamp": "2023-11-14T22:00:00Z"}
    mine: ResourceClaim = devices.claim(status={"allocation": allocation})
    snapshot = Snapshot(nodes=(node("a"),), resource_claims=(mine,), device_classes=(devices.device_class(),))
    made = NodeTable(snapshot, LEADING)
    made.now = parse_timestamp("2023-11-14T22:13:20Z")
    plugin = DynamicResources(DynamicResourcesArgs.model_validate({"bindingTimeout": timeout}))
    user = pod(resourceClaims=[{"name": "c", "resourceClaimName": "mine"}])
    assert (refusals(plugin, user, made) == {}) is accepted


def test_a_binding_timeout_of_less_than_a_second_is_refused():
    with pytest.raises(ValidationError, match="at least 1 second"):
        DynamicResourcesArgs.model_validate({"bindingTimeout": "100ms"})


def test_devices_are_searched_again_after_a_node_was_added():
    """Groups of nodes with equal devices then have other numbers."""
    asking, own = pod_with_claim("p", 2)
    counts = {"0": 2, "a": 1, "b": 2}
    slices = [
        devices.slice_of(name, [devices.gpu(f"d{n}") for n in range(count)]) for name, count in counts.items()
    ]
    snapshot = Snapshot(
        nodes=(node("a"), node("b")),
        resource_slices=tuple(slices),
        resource_claims=(own,),
        device_classes=(devices.device_class(),),
    )
    made = NodeTable(snapshot, LEADING)
    refused = {"a": ("cannot allocate all claims",)}
    assert refusals(DynamicResources(), asking, made) == refused
    made.replace_all_nodes([node("0"), *made.nodes])
    assert refusals(DynamicResources(), asking, made) == refused


def test_pods_of_one_name_reserve_devices_for_extended_resources_under_keys_of_their_own():
    """A new pod may be placed while the deleted pod with its name is still being bound."""
    old = pod("a")
    new = msgspec.structs.replace(old, metadata=msgspec.structs.replace(old.metadata, uid="of the new pod"))
    assert extended_resource_claim_key(old) != extended_resource_claim_key(new)


def test_equal_claims_get_the_configuration_of_the_class_that_each_of_them_uses():
    """Two claims with the same two alternatives are served by devices of two classes."""
    classes = [
        devices.device_class(
            model,
            f'device.attributes["{devices.DRIVER}"].model == "{model}"',
            config=[{"opaque": {"driver": devices.DRIVER, "parameters": {"of": model}}}],
        )
        for model in ("h100", "a100")
    ]
    alternatives = [{"name": one.metadata.name, "deviceClassName": one.metadata.name} for one in classes]
    either = {"name": "r", "firstAvailable": alternatives}
    slices = [
        devices.slice_of(model, [devices.gpu("d", attributes={"model": {"string": model}})])
        for model in ("a100", "h100")
    ]
    claims = [devices.claim(f"{name}-claim", either) for name in ("p", "q")]
    snapshot = Snapshot(
        nodes=(node("a100"), node("h100")),
        resource_slices=tuple(slices),
        resource_claims=tuple(claims),
        device_classes=tuple(classes),
    )
    made, plugin = NodeTable(snapshot, LEADING), DynamicResources()
    for index, name in enumerate(("p", "q")):
        user = pod(name, resourceClaims=[{"name": "r", "resourceClaimName": f"{name}-claim"}])
        assert plugin.reserve(user, index, made, CycleState()).ok
    allocations = msgspec.to_builtins(
        [made.device_ledger.reserved_allocation_of_claim(claim.key) for claim in claims]
    )
    configured = [allocation["devices"]["config"][0]["opaque"]["parameters"] for allocation in allocations]
    assert configured == [{"of": "a100"}, {"of": "h100"}]
