"""`batchsched schema`: print the JSON Schema of an input or output, such as the configuration."""

import json
import sys
from enum import StrEnum
from inspect import cleandoc
from typing import Annotated, Any

import typer

INDENT = 2


EXAMPLES = """Example:

batchsched schema podgroup > podgroup.schema.json
"""


class SchemaKind(StrEnum):
    """The kinds of documents for which `batchsched schema` can print the JSON Schema."""

    SNAPSHOT = "snapshot"
    DECISION = "decision"
    CONFIG = "config"
    PODGROUP = "podgroup"
    QUEUE = "queue"
    TOPOLOGY = "topology"


def schema(
    of: Annotated[
        SchemaKind,
        typer.Argument(
            metavar="OF",
            help="snapshot (what decide reads), decision "
            "(what it prints), config, podgroup, queue or topology.",
        ),
    ],
) -> None:
    """Print the JSON Schema of the input, the decision, the configuration, or a custom resource."""
    sys.stdout.write(schema_text(of))


def schema_text(of: SchemaKind) -> str:
    """Return the JSON Schema of a kind of document as text, with the keys in the order of their declaration."""
    return json.dumps(_unindented(schema_of(of), of), indent=INDENT, ensure_ascii=False) + "\n"


def _unindented(part: Any, of: SchemaKind) -> Any:
    """Return a part of a JSON Schema without the indentation of descriptions, which Python before 3.13 keeps.

    The descriptions of the fields of the configuration become one line each.
    """
    if isinstance(part, dict):
        fold = of is SchemaKind.CONFIG and "properties" not in part
        return {
            key: (" ".join(value.split()) if fold else cleandoc(value))
            if key == "description" and isinstance(value, str)
            else _unindented(value, of)
            for key, value in part.items()
        }
    return [_unindented(item, of) for item in part] if isinstance(part, list) else part


def schema_of(of: SchemaKind) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document as a Python mapping."""
    import msgspec
    from pydantic import BaseModel

    from batchsched.api.crd.podgroup import PodGroup
    from batchsched.api.crd.queue import Queue
    from batchsched.api.crd.topology import Topology
    from batchsched.api.decision import Decision
    from batchsched.config.schema import BatchSchedulerConfiguration
    from batchsched.manifests import schemas as manifests

    if of is SchemaKind.SNAPSHOT:
        return manifests.manifest_schema()
    if of is SchemaKind.DECISION:
        return {"$schema": manifests.DIALECT, **msgspec.json.schema(Decision)}
    models: dict[SchemaKind, type[BaseModel]] = {
        SchemaKind.CONFIG: BatchSchedulerConfiguration,
        SchemaKind.PODGROUP: PodGroup,
        SchemaKind.QUEUE: Queue,
        SchemaKind.TOPOLOGY: Topology,
    }
    return {"$schema": manifests.DIALECT, **models[of].model_json_schema(by_alias=True)}
