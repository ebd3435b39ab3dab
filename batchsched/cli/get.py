"""`batchsched get`: list the PodGroups and Queues of a cluster."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchsched.cli.options import Context, Kubeconfig, Output

if TYPE_CHECKING:
    from pathlib import Path

    from batchsched.cli.listing import ListedKind

EXAMPLES = """Examples:

batchsched get podgroups

batchsched get pg -A -o wide

batchsched get podgroup bert -n team-a -o yaml

batchsched get queues
"""


class View(StrEnum):
    """Output format of a list."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


def get(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="podgroups (pg) or queues (bq).", show_default=False)
    ],
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="Names of objects; default: all objects.", show_default=False
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="The namespace; default: the namespace of the context.",
            show_default=False,
        ),
    ] = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="List all namespaces.")
    ] = False,
    selector: Annotated[
        str | None,
        typer.Option("--selector", "-l", help="Label selector, as for kubectl.", show_default=False),
    ] = None,
    output: Annotated[View, typer.Option("-o", "--output", help="Output format.")] = View.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """List PodGroups or Queues of a cluster with their status; -o wide adds the reasons.

    The arguments, the columns and the ages have the form that `kubectl get` uses.
    """
    import asyncio

    from batchsched.cli.listing import KINDS

    listed = next((known_kind for known_kind in KINDS if kind.lower() in known_kind.names), None)
    if listed is None:
        raise typer.BadParameter(f"there is no kind {kind!r}; expected podgroups (pg) or queues (bq)")
    if names and all_namespaces and listed.namespaced:
        raise typer.BadParameter(
            "names select objects of one namespace; remove --all-namespaces or the names"
        )
    if names and selector:
        raise typer.BadParameter("names and --selector exclude each other; remove one of them")
    source = _Source(kubeconfig, context, namespace, all_namespaces and not names)
    answer = asyncio.run(source.read(listed, names or (), {"labelSelector": selector} if selector else {}))
    _show(answer, listed, output, source)


class _Source:
    """A cluster and the namespaces to read.

    Args:
      kubeconfig, context: the cluster, as for kubectl.
      namespace: the value of --namespace; None: the namespace of the context.
      everywhere: true to read all namespaces.
    """

    def __init__(
        self, kubeconfig: "Path | None", context: str | None, namespace: str | None, everywhere: bool
    ) -> None:
        from batchsched.kube.credentials import Credentials

        self._credentials = Credentials(kubeconfig, context)
        self.everywhere = everywhere
        self.namespace = namespace or self._credentials.preferred_namespace

    async def read(self, listed: "ListedKind", names: Sequence[str], query: Mapping[str, str]) -> Any:
        """Return one object if one name is given, otherwise a list.

        Raises:
          UnusableInput: the API server does not serve this kind.
        """
        from batchsched.errors import ApiError, UnusableInput

        try:
            return await self._read(listed, names, query)
        except ApiError as error:
            # A 404 for a missing object has a reason in its Status; a 404 for an unknown kind has none.
            if error.status != 404 or (names and error.reason):
                raise
            raise UnusableInput(
                f"the cluster does not know {listed.plural} of batchsched; `batchsched install` adds the CRDs"
            ) from error

    async def _read(self, listed: "ListedKind", names: Sequence[str], query: Mapping[str, str]) -> Any:
        import msgspec

        from batchsched.api.crd.base import API_VERSION
        from batchsched.kube.clock import SystemClock
        from batchsched.kube.connection import Connection
        from batchsched.kube.resources import Resource

        resource = Resource(API_VERSION, listed.plural, listed.kind, listed.namespaced)
        where = "" if self.everywhere else self.namespace
        async with Connection(self._credentials, SystemClock()) as connection:
            if not names:
                raw = await connection.request("GET", resource.path(where), query=query, deadline=60.0)
                return msgspec.json.decode(raw)
            objects = [
                msgspec.json.decode(await connection.request("GET", resource.path(where, name)))
                for name in names
            ]
        if len(objects) == 1:
            return objects[0]
        return {"apiVersion": "v1", "kind": "List", "items": objects}


def _show(answer: Any, listed: "ListedKind", view: View, source: _Source) -> None:
    if view in (View.JSON, View.YAML):
        from batchsched.cli.printing import print_data

        print_data(answer, Output(view.value))
        return
    import time

    from batchsched.cli.listing import aligned, rows

    objects = answer.get("items", ()) if answer["kind"].endswith("List") else [answer]
    if not objects:
        where = "" if source.everywhere or not listed.namespaced else f" in {source.namespace} namespace"
        typer.echo(f"No {listed.plural} found{where}.", err=True)
        return
    namespaces = listed.namespaced and source.everywhere
    table = rows(listed, objects, time.time(), wide=view is View.WIDE, namespaces=namespaces)
    for line in aligned(table):
        typer.echo(line)
