"""What `run` refuses before it asks anybody."""

import pytest


@pytest.mark.parametrize("stated", ["a/b/c", "/name", "namespace/", ""])
def test_a_lease_is_a_name_perhaps_in_a_namespace(command, stated):
    result = command("run", "--lease", stated)
    assert result.code == 2
    assert "expected NAME or NS/NAME" in result.complaint


@pytest.mark.parametrize(
    "profile, complaint",
    [
        (
            "plugins: {filter: {enabled: [{name: Frob}]}}",
            "].plugins.filter.enabled[0].name: no plugin is named 'Frob'",
        ),
        ("policy: {name: frob}", "].policy.name: no policy is named 'frob'"),
        ("queuePolicy: {name: frob}", "].queuePolicy.name: no policy is named 'frob'"),
    ],
    ids=["plugin", "policy", "queue policy"],
)
def test_what_no_leader_could_use_is_refused_at_the_start(command, tmp_path, profile, complaint):
    file = tmp_path / "c.yaml"
    file.write_text(f"profiles: [{{schedulerName: good}}, {{schedulerName: bad, {profile}}}]")
    result = command("run", "--config", file, "--kubeconfig", file)
    assert result.code == 1
    assert f"{file}: profiles[1{complaint}" in result.err
