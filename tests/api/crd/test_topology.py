import pytest
from pydantic import ValidationError

from batchsched.api.crd.topology import Topology


def test_levels_keep_their_order():
    levels = [{"name": "zone", "nodeLabel": "z"}, {"name": "rack", "nodeLabel": "r"}]
    topology = Topology.model_validate({"metadata": {"name": "default"}, "spec": {"levels": levels}})
    assert [level.name for level in topology.spec.levels] == ["zone", "rack"]


def test_two_levels_of_one_name_are_refused():
    levels = [{"name": "rack", "nodeLabel": "a"}, {"name": "rack", "nodeLabel": "b"}]
    with pytest.raises(ValidationError, match="one name"):
        Topology.model_validate({"metadata": {"name": "default"}, "spec": {"levels": levels}})
