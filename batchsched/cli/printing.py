"""Output on standard output: JSON and YAML of any data, and tables that fit the terminal."""

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from batchsched.cli.options import Output

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

INDENT = 2


def print_data(data: Any, output: Output) -> None:
    """Print a Struct or plain values as JSON or YAML."""
    encoded = msgspec.json.encode(data)
    if output is Output.JSON:
        text = msgspec.json.format(encoded, indent=INDENT).decode()
    else:
        import yaml

        text = yaml.dump(
            msgspec.json.decode(encoded), Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True
        ).rstrip("\n")
    sys.stdout.write(text + "\n")


def console() -> "Console":
    """Return the console of standard output."""
    from rich.console import Console

    return Console(highlight=False, markup=False, soft_wrap=False)


def table(title: str, *columns: str) -> "Table":
    """Return an empty table. Cells are plain text, so that a name from a manifest cannot act as markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(
        title=Text(title, style="bold") if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in columns:
        made.add_column(Text(column), overflow="fold")
    return made


def add_row(made: "Table", *cells: str) -> None:
    """Add a row of plain text to a table."""
    from rich.text import Text

    made.add_row(*(Text(cell) for cell in cells))
