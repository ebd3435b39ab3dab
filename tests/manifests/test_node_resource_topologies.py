"""NodeResourceTopologies in manifests: they are read, written again, and set aside if an amount is invalid."""

from typing import Any

import msgspec
import yaml

from batchsched.api.snapshot import KIND_BY_GROUP_AND_NAME
from batchsched.manifests.reader import read_manifests
from batchsched.plugins.node_resource_topology.zones import read_node_numa_zones

KIND = KIND_BY_GROUP_AND_NAME["topology.node.k8s.io", "NodeResourceTopology"]


def manifest(available: Any) -> dict[str, Any]:
    """The object of a node, as the topology updater of Node Feature Discovery writes it."""
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n0"},
        "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}],
        "zones": [
            {
                "name": "node-0",
                "type": "Node",
                "costs": [{"name": "node-0", "value": 10}],
                "resources": [{"name": "cpu", "capacity": "4", "allocatable": "4", "available": available}],
            }
        ],
    }


def read(tmp_path: Any, *manifests: dict[str, Any]) -> Any:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        yaml.safe_dump_all([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}}, *manifests])
    )
    return read_manifests([path])


def test_a_topology_is_read_from_a_manifest_and_back_from_its_json(tmp_path):
    result = read(tmp_path, manifest("3500m"))
    assert not result.warnings
    (topology,) = result.snapshot.node_resource_topologies
    (zone,) = read_node_numa_zones(topology).zones
    assert (zone.number, zone.available, zone.costs) == (0, {"cpu": 3500}, {0: 10})
    assert msgspec.json.decode(msgspec.json.encode(topology), type=KIND.type) == topology


def test_a_topology_with_an_invalid_amount_is_set_aside(tmp_path):
    (problem,) = read(tmp_path, manifest("much")).set_aside_objects
    assert (problem.object, problem.field) == ("NodeResourceTopology n0", "zones[0].resources[0].available")
