"""The image, as far as it can be looked at without a container engine: what is copied builds, and it needs no root."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()


def copied() -> list[str]:
    """What the first stage takes of the repository."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    return [source.rstrip("/") for line in lines for source in line.split()[:-1]]


def test_copied_files_are_all_that_the_wheel_needs(tmp_path):
    for source in copied():
        to = tmp_path / "source" / source
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, to, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, to)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "."]
    subprocess.run([*build, "--wheel-dir", str(tmp_path)], cwd=tmp_path / "source", check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "batchsched/installed/crds/podgroups.yaml" in names
    assert "batchsched/installed/deploy/kustomize/base/kustomization.yaml" in names
    assert not any(name.startswith(("tests/", "docs/")) for name in names)


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


def test_version_of_the_image_is_that_of_the_package():
    from batchsched import __version__

    for file in ("kustomize/base/deployment.yaml", "helm/batchsched/Chart.yaml"):
        assert __version__ in (ROOT / "deploy" / file).read_text()
