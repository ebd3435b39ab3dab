"""`batchsched get`: gangs and queues of a cluster."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchsched.cli.options import Context, Kubeconfig, Output

if TYPE_CHECKING:
    from pathlib import Path

    from batchsched.cli.listing import Listed

EXAMPLES = """Examples:

batchsched get podgroups

batchsched get pg -A -o wide

batchsched get podgroup bert -n team-a -o yaml

batchsched get queues
"""


class View(StrEnum):
    """How a list is printed."""

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
        typer.Argument(metavar="[NAME]...", help="Some of them; default: all.", show_default=False),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="Default: that of the context.", show_default=False),
    ] = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces.")
    ] = False,
    selector: Annotated[
        str | None, typer.Option("--selector", "-l", help="Labels that they must have.", show_default=False)
    ] = None,
    output: Annotated[View, typer.Option("-o", "--output", help="How to print.")] = View.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """List PodGroups or Queues of a cluster: where each stands, and with -o wide why.

    Arguments are those of `kubectl get`, and so are the columns' shape and the ages.
    """
    import asyncio

    from batchsched.cli.listing import KINDS

    listed = next((one for one in KINDS if kind.lower() in one.names), None)
    if listed is None:
        raise typer.BadParameter(f"there is no kind {kind!r}; expected podgroups (pg) or queues (bq)")
    if names and all_namespaces and listed.namespaced:
        raise typer.BadParameter("a name is unique in one namespace only; leave --all-namespaces out")
    if names and selector:
        raise typer.BadParameter("a name and a selector together name nothing; leave one of them out")
    source = _Source(kubeconfig, context, namespace, all_namespaces and not names)
    answer = asyncio.run(source.read(listed, names or (), {"labelSelector": selector} if selector else {}))
    _show(answer, listed, output, source)


class _Source:
    """A cluster, and where in it to look.

    Args:
      kubeconfig, context: of the cluster.
      namespace: as stated.
      everywhere: in all namespaces.
    """

    def __init__(
        self, kubeconfig: "Path | None", context: str | None, namespace: str | None, everywhere: bool
    ) -> None:
        from batchsched.kube.credentials import Credentials

        self._credentials = Credentials(kubeconfig, context)
        self.everywhere = everywhere
        self.namespace = namespace or self._credentials.preferred_namespace

    async def read(self, listed: "Listed", names: Sequence[str], query: Mapping[str, str]) -> Any:
        """Return one object, or a list of those that there are.

        Raises:
          UnusableInput: the cluster does not have this kind of object.
        """
        from batchsched.errors import ApiError, UnusableInput

        try:
            return await self._read(listed, names, query)
        except ApiError as error:
            # An object that is not there has a reason, a kind that is not has none.
            if error.status != 404 or (names and error.reason):
                raise
            raise UnusableInput(
                f"the cluster does not know {listed.plural} of batchsched; `batchsched install` makes them known"
            ) from error

    async def _read(self, listed: "Listed", names: Sequence[str], query: Mapping[str, str]) -> Any:
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
            found = [
                msgspec.json.decode(await connection.request("GET", resource.path(where, name)))
                for name in names
            ]
        if len(found) == 1:
            return found[0]
        return {"apiVersion": "v1", "kind": "List", "items": found}


def _show(answer: Any, listed: "Listed", view: View, source: _Source) -> None:
    if view in (View.JSON, View.YAML):
        from batchsched.cli.printing import print_data

        print_data(answer, Output(view.value))
        return
    import time

    from batchsched.cli.listing import aligned, rows

    found = answer.get("items", ()) if answer["kind"].endswith("List") else [answer]
    if not found:
        where = "" if source.everywhere or not listed.namespaced else f" in {source.namespace} namespace"
        typer.echo(f"No {listed.plural} found{where}.", err=True)
        return
    namespaces = listed.namespaced and source.everywhere
    table = rows(listed, found, time.time(), wide=view is View.WIDE, namespaces=namespaces)
    for line in aligned(table):
        typer.echo(line)
