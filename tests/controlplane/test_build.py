"""Programs are found before they are built, and a machine that cannot build them is no failure unless CI says so."""

import pytest

from tests.controlplane import build, fixtures


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """A machine without programs and without Go."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.delenv("BATCHSCHED_REQUIRE_CONTROLPLANE", raising=False)

    def no_go():
        raise build.NoGo("there is no Go")

    monkeypatch.setattr(build, "_go", no_go)
    monkeypatch.setattr(build, "_get_go", lambda: None)


def test_the_binaries_that_envtest_would_use_take_precedence(tmp_path, monkeypatch):
    (tmp_path / "etcd").touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert build.program("etcd") == tmp_path / "etcd"
    assert build.find("kwok") != tmp_path / "kwok"


def test_each_release_of_kubernetes_has_programs_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "_build", lambda name, version, path: path.write_text(f"{name} {version}"))
    paths = {version: build.program("kube-apiserver", version) for version in build.VERSIONS}
    assert [path.read_text() for path in paths.values()] == ["kube-apiserver 1.37", "kube-apiserver 1.36"]
    assert build.program("kwok", "1.36") == build.program("kwok")


def test_each_pinned_release_is_the_one_that_is_stamped():
    for version, release in build.VERSIONS.items():
        pins = build.HERE / "kubernetes" / ("go.mod" if version == build.CURRENT else f"go-{version}.mod")
        assert f"require k8s.io/kubernetes {release}\n" in pins.read_text()
        assert release.startswith(f"v{version}.")


def test_a_failed_build_is_reported_and_is_an_error_only_if_required(nowhere, monkeypatch, capsys):
    assert build.main(["etcd"]) == 0
    assert "no control plane: there is no Go" in capsys.readouterr().err
    monkeypatch.setenv("BATCHSCHED_REQUIRE_CONTROLPLANE", "1")
    assert build.main(["etcd"]) == 1


def test_tests_are_skipped_by_name_or_fail_where_it_is_required(nowhere, tmp_path, monkeypatch):
    with pytest.raises(pytest.skip.Exception, match=r"etcd, kube-apiserver, kwok.*make controlplane"):
        fixtures.start(tmp_path)
    monkeypatch.setenv("BATCHSCHED_REQUIRE_CONTROLPLANE", "1")
    with pytest.raises(pytest.fail.Exception, match="make controlplane"):
        fixtures.start(tmp_path)
