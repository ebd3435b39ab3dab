"""The names that the package exports, and the page that describes them."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/python-api.md").read_text("utf-8")
PACKAGE = importlib.import_module("batchsched")
BLOCKS = re.findall(r"^```(python|text)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_examples_of_the_page_print_what_the_page_shows(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    shown = 0
    for position, (language, code) in enumerate(BLOCKS):
        if language != "python":
            continue
        exec(compile(code, "docs/python-api.md", "exec"), names)
        printed = capsys.readouterr().out
        if BLOCKS[position + 1 : position + 2] and BLOCKS[position + 1][0] == "text":
            assert printed == BLOCKS[position + 1][1]
            shown += 1
    assert shown == 3


def test_page_describes_every_exported_name():
    described = set(re.findall(r"`(\w+)(?:\([^`]*\))?`", PAGE.partition("## Names")[2]))
    assert set(PACKAGE.__all__) - {"__version__"} <= described


def test_stub_states_the_exported_names_and_the_modules_that_define_them():
    stub = ast.parse((ROOT / "batchsched/__init__.pyi").read_text("utf-8"))
    stated: dict[str, str | None] = {
        alias.asname: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert set(stated) | {"__version__"} == set(PACKAGE.__all__)
    assert {name: getattr(PACKAGE, name).__module__ for name in stated} == stated


def test_package_imports_nothing_of_its_own_before_a_name_is_used():
    code = "import sys, batchsched; print([name for name in sys.modules if name.startswith('batchsched.')])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_modules_import_exported_names_from_where_they_are_defined():
    """The import contracts do not see the lazy imports of the package, so nothing inside may rely on them."""
    taken = {
        alias.name
        for path in (ROOT / "batchsched").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "batchsched"
        for alias in node.names
    }
    assert taken == {"__version__"}


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'decode'"):
        PACKAGE.decode  # noqa: B018
