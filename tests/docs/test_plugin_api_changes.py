"""The page of renamed symbols of the plugin API names symbols that exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import batchsched

PAGE = Path(__file__).parents[2] / "docs" / "plugin-api-changes.md"
ROW = re.compile(r"^\| `[^`]+` \| (?P<new>`.*) \|$", re.MULTILINE)
SYMBOL = re.compile(r"`([A-Za-z_]+)\.([A-Za-z_]+)`")


def symbols() -> Iterator[tuple[str, str]]:
    """Yield the module or the class, and the name, of each definition in the package."""
    for path in Path(batchsched.__file__).parent.rglob("*.py"):
        for module_or_class in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(module_or_class, ast.Module | ast.ClassDef):
                owner = path.stem if isinstance(module_or_class, ast.Module) else module_or_class.name
                for node in ast.walk(module_or_class):
                    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                        yield owner, node.name
                    elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                        yield owner, node.id if isinstance(node, ast.Name) else node.attr


def modules() -> Iterator[tuple[str, str]]:
    """Yield the folder and the name of each module of the package."""
    for path in Path(batchsched.__file__).parent.rglob("*.py"):
        module = path.parent if path.name == "__init__.py" else path.with_suffix("")
        yield module.parent.name, module.name


def test_every_new_name_exists():
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    new = {symbol for row in rows for symbol in SYMBOL.findall(row)}
    assert len(new) > 100
    assert sorted(new - {*symbols(), *modules()}) == []
