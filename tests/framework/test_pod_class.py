"""What plugins read of a pod class."""

from tests.plugins.cluster import class_of, node, pod, table


def test_requested_columns_are_those_of_the_requested_resources():
    made = table([node("n", {"nvidia.com/gpu": "8"})])
    wish = class_of(made, pod(requests={"memory": "1Gi", "nvidia.com/gpu": "1"}))
    assert sorted(wish.requested_columns.tolist()) == sorted(
        made.column[name] for name in ("memory", "nvidia.com/gpu")
    )
