"""The bench of large clusters, on small ones."""

from bench.large import compare_partitions, measure


def test_measurement_states_seconds_memory_and_placed_pods():
    row = measure(nodes=32, bound=100, gangs=3, seed=0)
    assert 0 < row["placed"] <= row["pending"]
    assert row["build"] > 0
    assert row["peakMiB"] >= row["objectsMiB"] > 0


def test_parts_of_a_cluster_place_no_more_than_the_whole():
    text = compare_partitions(64, 128, 8, 1, 4)
    assert text.startswith("64 nodes, 8 gangs: together ")
    assert "in 4 parts" in text
