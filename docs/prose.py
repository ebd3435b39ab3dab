"""Check the prose of the repository against ``docs/prose-words.txt``, the words that this project does not use.

The check reads the pages of the site, README, CHANGELOG and CONTRIBUTING, and the comments, docstrings and messages
of ``batchsched/`` and of the page generators. Code in backquotes, code blocks and single words in quotation marks
are exempt.

``python docs/prose.py`` fails if there are more findings than ``docs/prose-baseline.txt`` records. ``--write`` lowers
the record. ``--list [PATH ...]`` prints each finding as ``file:line: word (hint)``. ``--long [PATH ...]`` prints the
sentences of the pages that have more than 35 words; these are warnings only.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
BASELINE = ROOT / "docs/prose-baseline.txt"
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md")
CODE_FILES = ("batchsched/**/*.py", "docs/generate/**/*.py")
MAX_SENTENCE_WORDS = 35
# A literal of at least three words counts as prose.
LITERAL = re.compile(r"(?:\b[A-Za-z]{2,}\b[^A-Za-z]+){2}[A-Za-z]{2}", re.ASCII)

# What to write instead of a banned word, by the regular expression of the word.
BANNED = dict(
    line.split(" => ")
    for line in (ROOT / "docs/prose-words.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
)
ANY = "|".join(f"({pattern})" for pattern in BANNED)
WORDS = re.compile(rf"(?<![\w-])(?:{ANY})(?![\w-])(?!\s*=)", re.IGNORECASE)
CODE = re.compile(
    r"^( *)(```|~~~).*?^ *\2|``.+?``|`[^`\n]+`|<[^<>\n]+>|\]\([^)\s]+\)|https?://\S+", re.S | re.M
)
QUOTED = re.compile(r"[\"“']\w+[\"”']")
DIRECTIVE = re.compile(r"#\s*(?:noqa|type:|ruff:|pragma|fmt:|!)")


def without_code(text: str) -> str:
    """The text with code and quoted words blanked out; the line numbers stay."""
    blank = re.compile(r"[^\n]")
    for pattern in (CODE, QUOTED):
        text = pattern.sub(lambda match: blank.sub(" ", match.group()), text)
    return re.sub(r"^ *(?:>>>|\.\.\.) .*$", "", text, flags=re.MULTILINE)


def passages(path: Path) -> Iterator[tuple[int, str]]:
    """The prose of a file, each passage with the number of its first line."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        yield 1, without_code(text)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and LITERAL.search(node.value):
            yield node.lineno, without_code(node.value)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not DIRECTIVE.match(token.string):
            yield token.start[0], without_code(token.string)


def findings(path: Path) -> list[tuple[int, str]]:
    """The banned words of a file, each with its line and what to write instead."""
    hints = list(BANNED.values())
    return sorted(
        (
            line + text.count("\n", 0, match.start()),
            f"{' '.join(match[0].split())} ({hints[(match.lastindex or 1) - 1]})",
        )
        for line, text in passages(path)
        for match in WORDS.finditer(text)
    )


def long_sentences(path: Path) -> Iterator[tuple[int, str]]:
    """The sentences of a page that are too long, with their lines. Headings, tables and lists end a sentence."""
    text = without_code(path.read_text("utf-8"))
    for match in re.finditer(r"(?:[^.!?:;|\n#]|\n(?!\s*(?:\n|[-*#|:\d!>])))+", text):
        words = match.group().split()
        if len(words) > MAX_SENTENCE_WORDS:
            yield text.count("\n", 0, match.start()) + 1, f"{len(words)} words: {' '.join(words[:8])} …"


def sources(selected: list[str]) -> list[Path]:
    """The files below the paths, or all that are checked."""
    files = {path for pattern in (*PAGES, *CODE_FILES) for path in ROOT.glob(pattern)}
    roots = [Path(name).resolve() for name in selected] or [ROOT]
    return sorted(path for path in files if any(path.is_relative_to(root) for root in roots))


def package_of(path: Path) -> str:
    """The row of the baseline that counts a file: its package, its folder of pages, or its own name."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:2]) if parts[0] == "batchsched" else "/".join(parts[:-1]) or parts[0]


def recorded() -> dict[str, int]:
    """The findings per package as the baseline has them; empty without a baseline."""
    lines = BASELINE.read_text("utf-8").splitlines() if BASELINE.exists() else []
    return {name: int(count) for name, count in (line.split() for line in lines if not line.startswith("#"))}


def main(arguments: list[str]) -> int:
    """Check, list or record the findings."""
    parser = argparse.ArgumentParser(
        description="Check the prose of the repository for words that it does not use."
    )
    parser.add_argument("--list", action="store_true", help="print each finding")
    parser.add_argument(
        "--long", action="store_true", help="print each sentence of more than 35 words in the pages"
    )
    parser.add_argument("--write", action="store_true", help="lower the recorded counts")
    parser.add_argument("paths", nargs="*", help="files and folders; without any, all that are checked")
    options = parser.parse_args(arguments)
    if options.list or options.long:
        for path in sources(options.paths):
            lines = findings(path) if options.list else []
            lines += long_sentences(path) if options.long and path.suffix == ".md" else []
            print(*(f"{path.relative_to(ROOT)}:{line}: {text}\n" for line, text in lines), sep="", end="")
        return 0
    counts = Counter(dict.fromkeys(recorded(), 0))
    for path in sources([]):
        counts[package_of(path)] += len(findings(path))
    total, allowed = sum(counts.values()), sum(recorded().values())
    if total > allowed:
        print(f"{total} banned words, {allowed} recorded; see `docs/prose.py --list PATH`:", file=sys.stderr)
        for name, count in sorted(counts.items()):
            if count > (before := recorded().get(name, 0)):
                print(f"  {name}: {before} -> {count}", file=sys.stderr)
    elif options.write:
        rows = [f"{name} {count}\n" for name, count in sorted(counts.items()) if count]
        header = "# Banned words by package, as docs/prose.py counts them. The sum may only fall.\n"
        BASELINE.write_text(header + "".join(rows), "utf-8")
    if long := sum(len(list(long_sentences(path))) for path in sources([]) if path.suffix == ".md"):
        print(
            f"warning: {long} sentences of more than 35 words; see `docs/prose.py --long PATH`",
            file=sys.stderr,
        )
    return int(total > allowed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
