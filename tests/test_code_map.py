"""The code map and the glossary name modules and classes that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/code-map.md").read_text("utf-8")
GLOSSARY = (ROOT / "docs/glossary.md").read_text("utf-8")
SOURCES = {
    path.relative_to(ROOT / "batchsched")
    .with_suffix("")
    .as_posix()
    .replace("/", ".")
    .removesuffix(".__init__"): path
    for path in (ROOT / "batchsched").rglob("*.py")
}
PACKAGES = "|".join(sorted({name.split(".")[0] for name in SOURCES}))
MODULE = re.compile(rf"(?<![\w./])(?:{PACKAGES})(?:\.\w+)+")
ROWS = re.findall(r"^\| (?!question|change|---)(.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
STEPS = re.findall(r"^(\d+)\. (.+)$", PAGE, re.MULTILINE)


def names_in(module: str) -> set[str]:
    """The names that a module defines at its top level."""
    names: set[str] = set()
    for node in ast.parse(SOURCES[module].read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def class_names() -> set[str]:
    return {
        node.name
        for path in SOURCES.values()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    }


def test_every_module_of_the_code_map_exists():
    assert {name for name in MODULE.findall(PAGE) if name not in SOURCES} == set()


@pytest.mark.parametrize("question, modules, names", ROWS, ids=[row[0] for row in ROWS])
def test_every_row_of_the_code_map_names_what_its_modules_define(question, modules, names):
    stated = re.findall(r"`([\w.]+)`", modules)
    defined = set().union(*(names_in(module) for module in stated))
    assert set(re.findall(r"`(\w+)`", names)) <= defined
    assert stated


def test_the_code_map_answers_thirty_questions_and_names_each_package():
    assert len(ROWS) >= 30
    packages = {path.name for path in (ROOT / "batchsched").iterdir() if (path / "__init__.py").exists()}
    assert packages - {name.split(".")[0] for name in MODULE.findall(PAGE)} <= {"ports", "service"}


def test_a_watch_event_becomes_a_bind_in_at_most_20_hand_overs():
    assert [int(number) for number, _ in STEPS] == list(range(1, len(STEPS) + 1))
    assert 0 < len(STEPS) <= 20
    assert all(step.startswith("`") for _, step in STEPS)


def test_every_class_of_the_steps_and_of_the_glossary_exists():
    stated = {name for _, step in STEPS for name in re.findall(r"`([A-Z]\w+)`", step)}
    stated |= set(re.findall(r"In\s+code:\s+`(\w+)`", GLOSSARY))
    assert stated - class_names() == set()


def test_every_new_module_of_the_plugin_api_changes_exists():
    page = (ROOT / "docs/plugin-api-changes.md").read_text("utf-8")
    last_cells = re.findall(r"^\| `.*\| ([^|]+) \|$", page, re.MULTILINE)
    named = {name for cell in last_cells for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", cell)}
    modules = {name for name in named if MODULE.fullmatch(name)}
    assert len(modules) > 20
    assert {name for name in modules if name not in SOURCES} == set()
