"""The image, as far as it can be looked at without a container engine: what is copied builds, and it needs no root."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()


def copied() -> list[str]:
    """What the first stage takes of the repository."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    return [source.rstrip("/") for line in lines for source in line.split()[:-1]]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built of nothing but the files that the image copies."""
    tmp_path = tmp_path_factory.mktemp("wheel")
    for source in copied():
        to = tmp_path / "source" / source
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, to, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, to)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "."]
    subprocess.run([*build, "--wheel-dir", str(tmp_path)], cwd=tmp_path / "source", check=True)
    (built,) = tmp_path.glob("*.whl")
    return built


def test_copied_files_are_all_that_the_wheel_needs(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "batchsched/installed/crds/podgroups.yaml" in names
    assert "batchsched/installed/deploy/kustomize/base/kustomization.yaml" in names
    assert not any(name.startswith(("tests/", "docs/")) for name in names)
    demo = [Path(name).name for name in names if name.startswith("batchsched/installed/examples/")]
    assert sorted(demo) == ["cluster.yaml", "jobs.yaml"]


def test_demo_runs_from_the_wheel_outside_of_the_repository(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as content:
        content.extractall(tmp_path / "site")
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site"), "COLUMNS": "80"}
    command = [sys.executable, "-m", "batchsched", "demo", "--gangs", "20"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    examples = tmp_path / "site/batchsched/installed/examples"
    assert f"batchsched explain {examples.relative_to(tmp_path)} podgroup/" in ran.stdout
    assert "warning" not in ran.stderr
    assert (tmp_path / "demo-report.html").stat().st_size > 0


def test_copied_files_are_not_excluded_by_dockerignore():
    seen = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {source.partition("/")[0] for source in copied()} <= seen


def test_process_is_the_first_and_runs_as_the_user_that_the_deployment_states():
    user, group = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)[-1]
    base = (ROOT / "deploy" / "kustomize" / "base" / "deployment.yaml").read_text()
    stated = yaml.safe_load(base)["spec"]["template"]["spec"]["securityContext"]
    assert (stated["runAsUser"], stated["runAsGroup"]) == (int(user), int(group))
    assert stated["runAsNonRoot"] is True
    assert re.search(r'^ENTRYPOINT \["batchsched"\]$', DOCKERFILE, re.MULTILINE)


def test_base_image_is_pinned_by_its_digest():
    (default,) = re.findall(r"^ARG PYTHON=(.+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"3\.13[.\d]*-slim-bookworm@sha256:[0-9a-f]{64}", default)
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"python:${PYTHON}"}


def pinned(file: Path) -> dict[str, str]:
    """The versions of a file of requirements, by normalised name."""
    pins = re.findall(r"^([A-Za-z0-9][\w.-]*)==(\S+)", file.read_text(), re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins}


@pytest.mark.parametrize("file", ["requirements.txt", "build-requirements.txt"])
def test_packages_of_the_image_have_hashes_and_the_pinned_versions(file):
    path, tested = ROOT / "deploy" / file, pinned(ROOT / "constraints.txt")
    versions = pinned(path)
    assert versions
    assert versions.items() <= tested.items(), "run `make hashes`"
    entries = re.split(r"\n(?=\w)", path.read_text().partition("\n")[2])
    assert len(entries) == len(versions)
    for entry in entries:
        first, *hashes = [line.strip(" \\") for line in entry.strip().splitlines()]
        assert re.fullmatch(r"[\w.-]+==\S+", first)
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", line) for line in hashes)
    assert f"--require-hashes --requirement {file}" in DOCKERFILE


def test_every_dependency_is_among_the_packages_of_the_image():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = {
        "requirements.txt": project["project"]["dependencies"],
        "build-requirements.txt": project["build-system"]["requires"],
    }
    for file, dependencies in wanted.items():
        names = {re.split(r"[^\w.-]", name)[0].replace("_", "-").lower() for name in dependencies}
        assert names <= pinned(ROOT / "deploy" / file).keys(), "run `make hashes`"


def test_no_other_installation_in_the_image_asks_a_package_index():
    asking = [line for line in DOCKERFILE.splitlines() if "pip " in line and "--require-hashes" not in line]
    assert asking
    assert all("--no-deps" in line for line in asking)


def test_bill_of_materials_lists_every_package_of_the_image_with_its_hashes(tmp_path):
    pytest.importorskip("cyclonedx_py", reason="needs the extra `release`, which `make setup` installs")
    file = tmp_path / "sbom.json"
    command = [
        sys.executable,
        "-m",
        "cyclonedx_py",
        "requirements",
        str(ROOT / "deploy" / "requirements.txt"),
    ]
    command += [
        "--pyproject",
        str(ROOT / "pyproject.toml"),
        "--output-reproducible",
        "--output-file",
        str(file),
    ]
    subprocess.run(command, check=True, capture_output=True)
    bill = json.loads(file.read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "batchsched"
    listed = {part["name"].lower(): part["version"] for part in bill["components"]}
    assert listed == pinned(ROOT / "deploy" / "requirements.txt")
    assert all(part["externalReferences"][0]["hashes"] for part in bill["components"])


def test_version_of_the_image_is_that_of_the_package():
    from batchsched import __version__

    for file in ("kustomize/base/deployment.yaml", "helm/batchsched/Chart.yaml"):
        assert __version__ in (ROOT / "deploy" / file).read_text()
