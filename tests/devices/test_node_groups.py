from batchsched.devices.inventory import DeviceInventory
from batchsched.devices.ledger import DeviceLedger
from batchsched.devices.node_groups import NodeGroupsByDevices
from tests.devices.objects import DRIVER, RULES, bare_node, slice_of

MODEL = frozenset({"model"})


def device(name="d", model="h100", memory="80Gi", **attributes):
    """A device with a model, a memory size and further text attributes."""
    texts = {"model": model, **attributes}
    return {
        "name": name,
        "attributes": {key: {"string": text} for key, text in texts.items() if text},
        "capacity": {"memory": {"value": memory}} if memory else {},
    }


def groups_of(*devices_by_node, names=MODEL):
    """Return the group of each node, where each node is given by its devices."""
    slices = [slice_of(f"n{number}", devices) for number, devices in enumerate(devices_by_node)]
    nodes = [bare_node(f"n{number}") for number in range(len(devices_by_node))]
    groups = NodeGroupsByDevices(DeviceInventory(slices, (), RULES), DeviceLedger({}), nodes)
    return groups.group_numbers(names).tolist()


def test_nodes_are_in_one_group_if_their_devices_differ_only_in_what_claims_do_not_read():
    first, second = groups_of(
        [device("d", uuid="1"), device("e", uuid="2")], [device("x", uuid="3"), device("y", serial="4")]
    )
    assert first == second


def test_nodes_are_in_different_groups_if_one_of_their_devices_differs_in_what_claims_read():
    own = [device("d"), device("e")]
    others = [
        [device("d"), device("e", model="a100")],
        [device("d"), device("e", model="")],
        [device("d", model="a100"), device("e")],
        [device("d"), device("e", **{f"{DRIVER}/model": "h100"})],
        [device("d"), device("e", memory="40Gi")],
        [device("d", memory="40Gi"), device("e")],
        [device("d"), device("e", memory="")],
        [device("d"), device("e") | {"allowMultipleAllocations": True}],
        [device("d"), device("e") | {"taints": [{"key": "broken", "effect": "NoSchedule"}]}],
        [device("d")],
    ]
    groups = groups_of(own, own, *others)
    assert groups[0] == groups[1]
    assert len(set(groups)) == 1 + len(others)


def test_all_attributes_count_if_the_names_that_claims_read_are_unknown():
    first, second, third = groups_of(
        [device(uuid="1")], [device(uuid="2")], [device(name="x", uuid="1")], names=None
    )
    assert first == third != second
