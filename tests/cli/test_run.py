"""What `run` refuses before it asks anybody."""

import pytest


@pytest.mark.parametrize("stated", ["a/b/c", "/name", "namespace/", ""])
def test_a_lease_is_a_name_perhaps_in_a_namespace(command, stated):
    result = command("run", "--lease", stated)
    assert result.code == 2
    assert "expected NAME or NS/NAME" in " ".join(result.err.replace("│", " ").split())
