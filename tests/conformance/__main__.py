"""`make conformance`: every case file of a folder, one line an area; without a folder, those of every release."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from batchsched.config.kubernetes_release import DEFAULT_VERSION, RELEASES, KubernetesVersion
from batchsched.framework.runtime.registry import load_plugin_classes
from tests.conformance import cycle, runner, streams

OWN = frozenset({"GangScheduling"})
"""Plugins that kube-scheduler does not have in its default profile."""


@dataclass(slots=True)
class Area:
    """The results of the cases of one file.

    Args:
      name: the file's, without its endings.
      counted: what the cases are.
      cases: how many there are.
      wrong: how many of them differ.
      first: the first difference.
    """

    name: str
    counted: str = "cases"
    cases: int = 0
    wrong: int = 0
    first: str = ""

    def take(self, differences: Iterable[str]) -> None:
        """Count one case."""
        self.cases += 1
        first = next(iter(differences), None)
        if first is not None:
            self.wrong += 1
            self.first = self.first or first

    def line(self) -> str:
        """Return the line to print."""
        text = f"{self.name}: {self.cases} {self.counted}, {self.wrong} mismatches"
        return f"{text}; first: {self.first}" if self.first else text


def main(arguments: Sequence[str], out: TextIO = sys.stdout) -> int:
    """Compare every case file; return 1 when anything differs, 2 when there is nothing to compare."""
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="case files, and streams/")
    parser.add_argument(
        "--kubernetes-version",
        choices=RELEASES,
        help="the recorded kube-scheduler; by default, as the answers show",
    )
    asked = parser.parse_args(arguments)
    if asked.folder is not None:
        return compare(asked.folder, asked.kubernetes_version or recorded_version(asked.folder), out)
    codes = []
    for version, folder in runner.RECORDINGS.items():
        print(f"kube-scheduler {version}", file=out)
        codes.append(compare(folder, version, out))
    return max(codes)


def recorded_version(folder: Path) -> KubernetesVersion:
    """Return the release that gave the recorded answers: NodeName has a PreFilter since 1.37.

    Cases with a profile, which may disable it, do not count. A folder without others counts as the default release.
    """
    for path in sorted(folder.glob("*.json*")):
        for case in runner.read(path):
            if case.expected.pre_filter and case.config is None:
                return "1.37" if "NodeName" in case.expected.pre_filter else "1.36"
    return DEFAULT_VERSION


def compare(folder: Path, version: KubernetesVersion, out: TextIO) -> int:
    """Compare every case file of a folder that was recorded from a release; return the exit code."""
    wrong, compared = 0, 0
    for path in files(folder):
        name = area_name(path)
        area = (compare_stream if path.parent != folder else compare_cases)(name, path, version)
        print(area.line(), file=out, flush=True)
        wrong += area.wrong
        compared += area.cases
    if not compared:
        print(f"{folder}: no cases found; expected AREA.json or AREA.json.gz", file=sys.stderr)
        return 2
    return 1 if wrong else 0


def files(folder: Path) -> Iterator[Path]:
    """Find the case files, then the streams, each by name."""
    for place in (folder, folder / "streams"):
        yield from sorted(path for path in place.glob("*.json*") if path.suffix in (".json", ".gz"))


def area_name(path: Path) -> str:
    """Return a file's name without its endings; a stream's with `streams/` before it."""
    name = path.name.removesuffix(".gz").removesuffix(".json")
    return f"streams/{name}" if path.parent.name == "streams" else name


def compare_cases(name: str, path: Path, version: KubernetesVersion) -> Area:
    """Compare every case of a file: each plugin by itself, and the whole cycle."""
    area = Area(name)
    for case in runner.read(path, version):
        area.take(differences(case))
    return area


def differences(case: runner.Case) -> Iterator[str]:
    """Yield what differs in one case, the plugins first."""
    known = {plugin.name: plugin for plugin in load_plugin_classes()}  # type: ignore[attr-defined]
    asked = {*case.expected.pre_filter, *case.expected.filter, *case.expected.raw}
    for name in sorted(asked - set(known)):
        yield f"{case.name} {name}: the plugin is missing"
    for name in sorted(asked & set(known) - OWN):
        yield from runner.mismatches(case, known[name])
    yield from cycle.mismatches(case)


def compare_stream(name: str, path: Path, version: KubernetesVersion) -> Area:
    """Compare every arrival of a stream."""
    stream = streams.read(path, version)
    area = Area(name, counted="arrivals")
    for line in streams.mismatches(stream):
        area.take([line])
    area.cases = len(stream.arrivals)
    return area


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
