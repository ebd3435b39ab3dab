"""The dump shows nodes, what is on them, and who waits."""

from batchsched.state.cluster_state import ClusterState
from batchsched.state.dumper import dump
from tests.state.objects import NOW, node, pod


def test_dump_shows_nodes_with_their_pods_and_what_they_take():
    cache = ClusterState()
    for one in (node("n0", memory="1Gi"), pod("b", on="n0"), pod("a"), pod("c", cpu=2), pod("d", on="gone")):
        cache.put(one)
    cache.assume("team/a", "n0", NOW)
    found = dump(cache.snapshot(), cache.assumed())
    assert found.text().splitlines() == [
        "Node gone (not known to the API): 1 pods; cpu 1000/0, pods 1/0",
        "  team/d",
        "Node n0: 2 pods; cpu 2000/64000, memory 0/1073741824, pods 2/110",
        "  team/a (assumed)",
        "  team/b",
        "waiting: 1 pods",
        "  team/c",
    ]


def test_empty_cache_has_an_empty_dump():
    assert dump(ClusterState().snapshot()).text() == "waiting: 0 pods"
