"""The rules of the house that no linter keeps."""

import ast
import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from pydantic.alias_generators import to_camel

from batchsched.api.crd.podgroup import PodGroupSpec
from batchsched.api.crd.queue import QueueSpec
from tests import ratchet

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "batchsched"
SOURCES = sorted(PACKAGE.rglob("*.py"))

MAX_FILE_LINES = 600

# Names that say nothing of what a file holds.
VAGUE = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_every_folder_is_in_the_architecture_page_and_the_page_names_no_other():
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    stated = set(re.findall(r"^\| \d+ \| `batchsched\.(\w+)`", page, re.MULTILINE))
    there = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    there |= {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert stated == there


def test_pins_are_versions_and_never_addresses():
    lines = [
        line
        for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
        if not line.startswith("#")
    ]
    assert lines
    assert [
        line
        for line in lines
        if not re.fullmatch(r"[\w.-]+==[\w.]+( ; python_version [<>=]+ '3\.\d+')?", line)
    ] == []


def test_every_requirement_is_pinned():
    table = project()["project"]
    assert isinstance(table, dict)
    wanted = [
        *table["dependencies"],
        *(name for extra in table["optional-dependencies"].values() for name in extra),
    ]
    names = {re.split(r"[\[><=~!; ]", line)[0].lower().replace("_", "-") for line in wanted} - {"batchsched"}
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    }
    assert names - pinned == set()


def test_every_pinned_version_takes_the_oldest_python_that_we_take():
    """Not that of today's patch release alone: Debian has 3.11.2, and a wheel may ask for 3.11.5."""
    table = project()["project"]
    assert isinstance(table, dict)
    oldest = str(table["requires-python"]).removeprefix(">=").split(",")[0] + ".0"
    wanted = {
        f"{found.name}=={found.version}": str(found.metadata.json.get("requires_python", ""))
        for found in metadata.distributions()
    }
    assert [
        f"{name} {pythons}" for name, pythons in wanted.items() if oldest not in SpecifierSet(pythons)
    ] == []


def test_no_file_is_longer_than_one_concept_needs():
    lengths = {named(path): len(path.read_text("utf-8").splitlines()) for path in SOURCES}
    assert {name: length for name, length in lengths.items() if length > MAX_FILE_LINES} == {}


def test_session_consists_of_packages_of_at_most_12_files():
    """Without `__init__.py`. The folder itself has only `decide` and what the packages share."""
    packages = [PACKAGE / "session", *(path.parent for path in (PACKAGE / "session").glob("*/__init__.py"))]
    sizes = {named(path): len(list(path.glob("*.py"))) - 1 for path in packages}
    assert {name: size for name, size in sizes.items() if size > 12} == {}


@pytest.mark.parametrize("ratchet_name", ratchet.RATCHETS)
def test_no_ratchet_rises(ratchet_name):
    """`python -m tests.ratchet --list` prints every finding, and `--write` records lower counts."""
    assert ratchet.rises(ratchet_name) == []


def test_modules_are_nouns_that_say_what_they_hold():
    assert [named(path) for path in SOURCES if path.stem in VAGUE or path.parent.name in VAGUE] == []


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_every_module_says_what_it_is_for(path):
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    assert docstring, "a module begins with its intent"
    assert len(docstring) > 20


def test_one_file_imports_ortools():
    importers = {
        named(path)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if (isinstance(node, ast.Import) and any(name.name.split(".")[0] == "ortools" for name in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ortools")
    }
    assert importers <= {"batchsched/solver/cpsat.py"}


def test_the_checker_shares_no_code_with_what_it_checks():
    checker = {"batchsched.solver.verify", "batchsched.solver.verify_trees"}
    of_ours = {
        node.module
        for module in checker
        for node in ast.walk(ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("batchsched")
    }
    inputs = {"batchsched.solver.problem", "batchsched.solver.victims.victim_problem"}
    assert of_ours <= checker | inputs | {"batchsched.errors"}


@pytest.mark.parametrize("kind, spec", [("PodGroup", PodGroupSpec), ("Queue", QueueSpec)])
def test_the_page_of_custom_resources_states_every_field_and_its_default(kind, spec):
    page = (ROOT / "docs/reference/custom-resources.md").read_text("utf-8")
    section = page.partition(f"\n## {kind}\n")[2].partition("\n## ")[0]
    stated = dict(re.findall(r"^\| `(\w+)` \| `?(\w+)`? \|", section, re.MULTILINE))
    defaults = {to_camel(name): spec.model_fields[name].default for name in spec.model_fields}
    assert stated == {name: written(value) for name, value in defaults.items()}


def written(default: object) -> str:
    if default is None or default in ("", ()):
        return "none"
    return (
        str(default).lower()
        if isinstance(default, bool)
        else f"{default:g}"
        if isinstance(default, float)
        else str(default)
    )


def test_entry_points_name_modules_that_exist():
    table = project()["project"]
    assert isinstance(table, dict)
    for group, entries in table.get("entry-points", {}).items():
        for name, target in entries.items():
            module, _, attribute = target.partition(":")
            file = ROOT / (module.replace(".", "/") + ".py")
            package = ROOT / module.replace(".", "/") / "__init__.py"
            assert file.exists() or package.exists(), f"{group}: {name} = {target}"
            assert attribute.isidentifier(), f"{group}: {name} = {target}"


def test_make_help_explains_every_target():
    text = (ROOT / "Makefile").read_text("utf-8")
    phony = set(next(line for line in text.splitlines() if line.startswith(".PHONY:")).split()[1:])
    explained = set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))
    assert phony == explained
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert all(f"make {target} " in shown for target in phony)


def test_every_page_is_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages == set(re.findall(r"[\w/-]+\.md", nav))


def test_the_changelog_has_a_place_for_what_comes_next():
    assert "\n## Unreleased\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")
