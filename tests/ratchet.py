"""Counts of what the code should lose: names without meaning, undefined nouns, crumbs, modules that import too much.

`tests/ratchet.json` records each count, and `tests/test_house.py` fails if one rises. `python -m tests.ratchet`
prints the counts, `--list` prints each finding, and `--write` records the counts where they are lower.
"""

import ast
import json
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RECORD = Path(__file__).with_suffix(".json")
MIN_FILE_LINES = 40
MAX_IMPORTED_MODULES = 20

# Names that do not say what the value is. A name matches with or without a leading underscore.
EMPTY_NAMES = re.compile(
    "one|some|at|found|mine|there|told|gone|known|wanted|asked|left|here|it|ours|theirs|stated|given|said|klass"
    "|that|this|those|them|who|whom|whose|whoever|nobody|somebody|anybody|everybody|others|going|stands|beside|about"
    "|again|anew|such|what|came|happened|having|MOST|LONGEST|PATIENCE|AGAIN|MANY|LOOKS|SHORT|NOBODY"
)
EXCEPTION = re.compile(r"\((?:\w*Error|Exception|InvalidInput)\):")
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

# Nouns that a class name may end with although the glossary does not define them, by reason.
PLAIN_NOUNS = {
    "the API of Kubernetes, and what its documentation calls things": """
        affinity allocatable attachment binder budget capacity claim class cluster condition constraint
        container controller definition device disk disruption driver election elector endpoint event eviction extender
        finalizer gate image kubelet label lease lister meta namespace object owner port quantity reference
        requirement resource scheduler selector service set source spec spread status storage strategy taint
        term toleration type volume workload
    """,
    "Python and programming in general": """
        access account action address aggregate alarm allocation answer app args arrival attempt bearer binding
        builder cache call candidate cause chain change choice client clock code collector column comparison config
        configuration conflict connection count counter credentials cycle decoder delay demand document effort
        entry envelope error estimator evidence experiment explainer explanation failure fault figure
        filter follower format gauge handle heap identity index info input installation interval isolator item job key
        kind lane ledger limit line list listener loop membership memo message method metric model name number observer
        options order outcome output page pair parameter part path period placement placer plan point position
        preference probe process program progress projection proposer reader reading record recorder ref
        reflector registry reloader reply report request response result row rule sampler scorer search section
        selection series server settings shape site snapshot sort stage state stopwatch store subject
        subset summary table task telemetry time timing tls transport tree trial tuning unit use user
        value vertex view wakeup window worker writer
    """,
    "operations research and statistics": """
        case difference fairness family fit machine mean measure objective optimum problem ratio relocation
        sense solver split
    """,
}


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax trees of the package, by the path of the file from the root."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8"))
        for path in sorted((ROOT / "batchsched").rglob("*.py"))
    }


def package_of(path: str) -> str:
    return path.split("/")[1].removesuffix(".py")


def bound_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each name that the module binds, with its line; without the targets of one-line comprehensions."""
    exempt = {
        id(name)
        for node in ast.walk(tree)
        if isinstance(node, COMPREHENSIONS) and node.lineno == node.end_lineno
        for generator in node.generators
        for name in ast.walk(generator.target)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in exempt:
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name


def empty_names() -> dict[str, list[str]]:
    """The bound names without meaning, by package, each as `file:line: name`."""
    findings: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees().items():
        for line, name in bound_names(tree):
            if EMPTY_NAMES.fullmatch(name.strip("_")):
                findings[package_of(path)].append(f"{path}:{line}: {name}")
    return dict(findings)


def public_classes() -> Iterator[tuple[str, str]]:
    """The path and the name of each public class, without exceptions, which are named for the failure."""
    for path, tree in trees().items():
        for node in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            if not node.name.startswith("_") and not EXCEPTION.search(ast.unparse(node).partition("\n")[0]):
                yield path, node.name


@cache
def entry_points() -> list[str]:
    """What pyproject.toml names as `module:attribute`."""
    tables: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "entry-points"
    ]
    return [target for table in tables.values() for target in table.values()]


def is_named_by_its_entry_point(path: str, name: str) -> bool:
    """Whether a class is a plugin or a policy, which has the name that its users configure."""
    targets = (target.split(":") for target in entry_points())
    return any(name == attribute and module_of(path).startswith(module) for module, attribute in targets)


def module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def singular(noun: str) -> str:
    noun = noun.lower()
    for plural, ending in (
        *((invariant, invariant) for invariant in ("series", "ss", "us", "is")),
        *(("ies", "y"), ("sses", "ss"), ("xes", "x"), ("s", "")),
    ):
        if noun.endswith(plural) and len(noun) > 3:
            return noun.removesuffix(plural) + ending
    return noun


def head_noun(name: str) -> str:
    """The last word of a class name, in the singular: node of `CSINode`."""
    return singular(re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", name)[-1])


@cache
def defined_nouns() -> set[str]:
    """The nouns that a class name may end with: the last word of each term of the glossary, and the plain nouns."""
    lines = (ROOT / "docs/glossary.md").read_text("utf-8").splitlines()
    terms = [term for line, after in pairwise(lines) if after.startswith(":") for term in line.split(",")]
    nouns = {re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|\w+", term)[-1] for term in terms}
    plain = {noun for row in PLAIN_NOUNS.values() for noun in row.split()}
    return {singular(noun) for noun in nouns | plain}


def undefined_nouns() -> dict[str, list[str]]:
    """The head nouns of public classes that are neither in the glossary nor plain, each with its classes."""
    findings: dict[str, list[str]] = defaultdict(list)
    for path, name in public_classes():
        if head_noun(name) not in defined_nouns() and not is_named_by_its_entry_point(path, name):
            findings[head_noun(name)].append(f"{path}: {name}")
    return dict(findings)


def repeated_names() -> dict[str, list[str]]:
    """The names of more than one public class, each with its files."""
    files: dict[str, list[str]] = defaultdict(list)
    for path, name in public_classes():
        if not is_named_by_its_entry_point(path, name):
            files[name].append(path)
    return {name: paths for name, paths in files.items() if len(paths) > 1}


def crumbs() -> dict[str, list[str]]:
    """The files under 40 lines, by package, without `__init__`, `__main__` and the modules of entry points."""
    exempt = {target.partition(":")[0] for target in entry_points()}
    findings: dict[str, list[str]] = defaultdict(list)
    for path in trees():
        lines = len((ROOT / path).read_text("utf-8").splitlines())
        if lines < MIN_FILE_LINES and "__" not in path and module_of(path) not in exempt:
            findings[package_of(path)].append(f"{path}: {lines} lines")
    return dict(findings)


@cache
def all_modules() -> set[str]:
    return {module_of(path) for path in trees()}


def imported_modules(tree: ast.Module) -> set[str]:
    """The modules of the package that a module imports."""
    modules = all_modules()
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported |= {
                inner if (inner := f"{node.module}.{alias.name}") in modules else node.module
                for alias in node.names
            }
    return imported & modules


def wide_modules() -> dict[str, list[str]]:
    """The modules that import more than 20 modules of the package, by package."""
    findings: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees().items():
        if (count := len(imported_modules(tree))) > MAX_IMPORTED_MODULES:
            findings[package_of(path)].append(f"{path}: {count} modules")
    return dict(findings)


# Each ratchet with whether its record is a list of names, to which none may be added, or a count, which may not rise.
RATCHETS: dict[str, tuple[Callable[[], dict[str, list[str]]], bool]] = {
    "empty names": (empty_names, False),
    "undefined nouns": (undefined_nouns, True),
    "repeated class names": (repeated_names, True),
    "files under 40 lines": (crumbs, False),
    "modules that import more than 20": (wide_modules, False),
}


def recorded() -> dict[str, dict[str, int]]:
    """The recorded counts of each ratchet, by package or name."""
    counts: dict[str, dict[str, int]] = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    return counts


def rises(ratchet: str) -> list[str]:
    """What is more than recorded: the findings of each name that is not recorded, or of each package with more."""
    find, by_name = RATCHETS[ratchet]
    findings, record = find(), recorded().get(ratchet, {})
    if by_name:
        return [finding for name in findings.keys() - record.keys() for finding in findings[name]]
    if sum(map(len, findings.values())) <= sum(record.values()):
        return []
    more = [name for name in findings if len(findings[name]) > record.get(name, 0)]
    return [finding for name in more for finding in findings[name]]


def main(arguments: list[str]) -> int:
    """Print the counts, list the findings, or record lower counts."""
    record = recorded()
    for ratchet, (find, _) in RATCHETS.items():
        findings = find()
        total = sum(map(len, findings.values()))
        print(f"{ratchet}: {total}, recorded {sum(record.get(ratchet, {}).values())}")
        if "--list" in arguments:
            print(*(f"  {finding}" for name in sorted(findings) for finding in findings[name]), sep="\n")
        if ratchet not in record or not rises(ratchet):
            record[ratchet] = {name: len(findings[name]) for name in sorted(findings)}
    if "--write" in arguments:
        RECORD.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
