"""`batchsched convert`: convert queues and topologies of Volcano, KAI-Scheduler and Kueue to objects of batchsched."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from batchsched.cli.options import check_files_exist

EXAMPLES = """Examples:

batchsched convert -f queues.yaml > batchsched-queues.yaml

kubectl get clusterqueues,cohorts,localqueues -A -o yaml | batchsched convert -f -

batchsched convert -f kai-queues.yaml -f topologies.yaml -o json
"""


class ManifestOutputFormat(StrEnum):
    """The formats in which `batchsched convert` prints the converted objects."""

    YAML = "yaml"
    JSON = "json"


def convert(
    files: Annotated[
        list[Path],
        typer.Option(
            "--filename",
            "-f",
            metavar="FILE",
            help="Manifests of Queues, ClusterQueues, Cohorts, LocalQueues, ResourceFlavors, WorkloadPriorityClasses, "
            "Topologies and HyperNodes, or directories of them; - is standard input. Repeat it for several files.",
            callback=check_files_exist,
        ),
    ],
    output: Annotated[
        ManifestOutputFormat,
        typer.Option("--output", "-o", metavar="FORMAT", help="yaml, or json: one List."),
    ] = ManifestOutputFormat.YAML,
) -> None:
    """Convert queues and topologies of Volcano, KAI-Scheduler and Kueue to Queues and Topologies.

    The converted objects are printed. Nothing is written to a cluster. A field that has no counterpart is named in a
    warning on standard error, with what to do instead.
    """
    from batchsched.errors import CommandError
    from batchsched.manifests.conversion.convert import convert_objects_of_other_schedulers
    from batchsched.manifests.documents import split_documents
    from batchsched.manifests.reader import find_manifest_files

    documents = [
        document
        for source in find_manifest_files(files)
        for document in split_documents(source.read(), source.name)
    ]
    conversion = convert_objects_of_other_schedulers(documents)
    for warning in conversion.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if not conversion.converted:
        names = ", ".join(map(str, files))
        raise CommandError(f"{names}: there is no queue or topology of Volcano, KAI or Kueue in it")
    sys.stdout.write(_printed(conversion.objects, output))


def _printed(objects: tuple[dict[str, Any], ...], output: ManifestOutputFormat) -> str:
    if output is ManifestOutputFormat.JSON:
        import json

        return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=2) + "\n"
    import yaml

    return yaml.safe_dump_all(objects, sort_keys=False, explicit_start=True) if objects else ""
