"""The example of the page on queues has the figures that the code has."""

import re
from pathlib import Path

import pytest
import yaml

from batchsched.api.crd.queue import Queue
from batchsched.queues.sharing.policy import registered_policy_classes
from tests.queues.sharing.trees import cluster, divided, shares_of

PAGE = (Path(__file__).parents[2] / "docs/queues.md").read_text("utf-8")
QUEUES = [
    Queue.model_validate(one)
    for one in yaml.safe_load_all(PAGE.partition("```yaml\n")[2].partition("```")[0])
]
TABLE = [
    (name, [int(cell) for cell in row[1:]])
    for line in PAGE.splitlines()
    if (row := [cell.strip() for cell in line.strip("|").split("|")]) and re.fullmatch(r"\d+", row[-1])
    for name in re.findall(r"`([\w-]+)`", row[0])
]


@pytest.mark.parametrize("policy, expected", TABLE, ids=[name for name, _ in TABLE])
def test_fair_shares_equal_the_table_of_the_documentation(policy, expected):
    shares = shares_of(
        QUEUES,
        cluster(gpu=96),
        usage={"vision": [20], "language": [4], "product": [8], "students": [64]},
        waits={"vision": [60], "product": [40]},
        history={"vision": [16], "language": [8], "product": [8], "students": [30]},
    )
    fair = divided(shares, policy)
    assert [fair[name][0] for name in ("vision", "language", "product", "students")] == expected


def test_table_names_every_policy():
    assert sorted(name for name, _ in TABLE) == sorted(registered_policy_classes())
