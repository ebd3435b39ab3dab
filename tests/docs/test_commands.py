from batchsched.cli.app import app
from docs.generate.commands import commands


def test_page_has_every_command_with_its_options_and_examples():
    page = commands()
    for command in app.registered_commands:
        assert command.callback is not None
        assert f"## `batchsched {command.name or command.callback.__name__}`" in page
    assert (
        "| `-o`, `--output` `FORMAT` | table, json, yaml, or jsonpath=TEMPLATE as for kubectl. | `table` |"
        in page
    )
    assert "| `FILE...` |" in page
    assert "$ batchsched decide examples/" in page
