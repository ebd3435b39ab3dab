"""What `run` refuses before it connects to a cluster."""

import pytest


@pytest.mark.parametrize("stated", ["a/b/c", "/name", "namespace/", ""])
def test_a_lease_is_a_name_with_an_optional_namespace(command, stated):
    result = command("run", "--lease", stated)
    assert result.code == 2
    assert "expected NAME or NS/NAME" in result.complaint


@pytest.mark.parametrize(
    "profile, complaint",
    [
        (
            "plugins: {filter: {enabled: [{name: Frob}]}}",
            "].plugins.filter.enabled[0].name: there is no plugin 'Frob'",
        ),
        ("policy: {name: frob}", "].policy.name: there is no policy 'frob'"),
        ("queuePolicy: {name: frob}", "].queuePolicy.name: there is no policy 'frob'"),
    ],
    ids=["plugin", "policy", "queue policy"],
)
def test_an_invalid_configuration_is_refused_before_leader_election(command, tmp_path, profile, complaint):
    file = tmp_path / "c.yaml"
    file.write_text(f"profiles: [{{schedulerName: good}}, {{schedulerName: bad, {profile}}}]")
    result = command("run", "--config", file, "--kubeconfig", file)
    assert result.code == 1
    assert f"{file}: profiles[1{complaint}" in result.err
