"""`batchsched get`: list the PodGroups and Queues of a cluster."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from batchsched.api.core.metadata import parse_timestamp
from batchsched.cli.options import Context, Kubeconfig, ListFormat, NoHeaders, OutputFormat
from batchsched.cli.printing import NONE, UNKNOWN, column_widths, format_duration, print_aligned, print_data

if TYPE_CHECKING:
    from batchsched.kube.connection import ApiResource
    from batchsched.kube.credentials import CredentialsReader

EXAMPLES = """Examples:

batchsched get podgroups

batchsched get pg -A -o wide

batchsched get podgroup/bert -n team-a -o yaml

batchsched get podgroups -w

batchsched get pg -A -o jsonpath='{.items[*].metadata.name}'

batchsched get queues
"""


Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ListColumn:
    """A column of the tables that `batchsched get` prints.

    Args:
      title: the heading, in capitals.
      cell: returns the text of the cell for an object; its second argument is the present time in seconds since 1970.
      wide: true if only `-o wide` shows the column.
    """

    title: str
    cell: Callable[[Object, float], str]
    wide: bool = False


@dataclass(frozen=True, slots=True)
class ListedKind:
    """A kind of object that `batchsched get` can list, with the columns of its table.

    Args:
      plural: the name in API paths.
      kind: the kind of the objects.
      names: the names and short names that the command accepts.
      namespaced: true if the objects belong to namespaces.
      columns: the columns after NAME.
    """

    plural: str
    kind: str
    names: tuple[str, ...]
    namespaced: bool
    columns: tuple[ListColumn, ...]


def value_at_path(content: Any, *path: str) -> Any:
    """Return the value at a path of keys in nested mappings, or None if a key is missing."""
    for part in path:
        content = content.get(part) if isinstance(content, Mapping) else None
    return content


def _text(*path: str, missing: str = NONE) -> Callable[[Object, float], str]:
    def format_field(content: Object, _: float) -> str:
        field = value_at_path(content, *path)
        return missing if field in (None, "") else str(field)

    return format_field


def _amounts(*path: str) -> Callable[[Object, float], str]:
    def format_amounts(content: Object, _: float) -> str:
        amounts = value_at_path(content, *path)
        return ",".join(f"{name}={amount}" for name, amount in sorted(amounts.items())) if amounts else NONE

    return format_amounts


def _queue(content: Object, _: float) -> str:
    """Return the queue of a PodGroup; the running scheduler writes the default queue of the Namespace to the status."""
    return value_at_path(content, "spec", "queue") or value_at_path(content, "status", "queue") or UNKNOWN


def _namespaces(content: Object, _: float) -> str:
    """Return the selector of the namespaces that may use a queue."""
    from batchsched.api.crd.queue import NamespaceSelector

    selector = value_at_path(content, "spec", "namespaceSelector")
    return NONE if selector is None else str(NamespaceSelector.model_validate(selector))


def _condition(kind: str, *fields: str) -> Callable[[Object, float], str]:
    def format_condition(content: Object, _: float) -> str:
        for condition in value_at_path(content, "status", "conditions") or ():
            if condition.get("type") == kind:
                return ": ".join(str(condition[name]) for name in fields if condition.get(name)) or NONE
        return UNKNOWN

    return format_condition


def _min_member(content: Object, _: float) -> str:
    """Return minMember: the larger of the stated number and the sum over the subgroups."""
    spec = value_at_path(content, "spec") or {}
    total = sum(sub.get("minMember", 1) for sub in spec.get("subGroups") or ())
    return str(max(spec.get("minMember", 0), total) or 1)


def _age(content: Object, now: float) -> str:
    created = parse_timestamp(value_at_path(content, "metadata", "creationTimestamp"), default=-1.0)
    return UNKNOWN if created < 0 else format_duration(now - created)


def _start(content: Object, now: float) -> str:
    """Return the time until the estimated start of a gang."""
    start = parse_timestamp(value_at_path(content, "status", "estimatedStartTime"), default=-1.0)
    if start < 0:
        return NONE
    return f"in {format_duration(start - now)}" if start > now else "now"


AGE: Final = ListColumn("AGE", _age)
POD_GROUPS: Final = ListedKind(
    "podgroups",
    "PodGroup",
    ("podgroups", "podgroup", "pg"),
    namespaced=True,
    columns=(
        ListColumn("PHASE", _text("status", "phase", missing=UNKNOWN)),
        ListColumn("MIN", _min_member),
        ListColumn("PLACED", _text("status", "placed", missing="0")),
        ListColumn("RUNNING", _text("status", "running", missing="0")),
        ListColumn("QUEUE", _queue),
        AGE,
        ListColumn("POSITION", _text("status", "queuePosition"), wide=True),
        ListColumn("START", _start, wide=True),
        ListColumn("SCHEDULED", _condition("Scheduled", "reason", "message"), wide=True),
    ),
)
QUEUES: Final = ListedKind(
    "queues",
    "Queue",
    ("queues", "queue", "bq"),
    namespaced=False,
    columns=(
        ListColumn("PARENT", _text("spec", "parent")),
        ListColumn("WEIGHT", _text("spec", "weight", missing="1")),
        ListColumn("PENDING", _text("status", "pending", missing="0")),
        ListColumn("ALLOCATED", _amounts("status", "allocated")),
        AGE,
        ListColumn("GUARANTEE", _amounts("spec", "guarantee"), wide=True),
        ListColumn("LIMIT", _amounts("spec", "limit"), wide=True),
        ListColumn("FAIR-SHARE", _amounts("status", "fairShare"), wide=True),
        ListColumn("NAMESPACES", _namespaces, wide=True),
        ListColumn("ACTIVE", _condition("Active", "reason", "message"), wide=True),
    ),
)
KINDS: Final = (POD_GROUPS, QUEUES)


@dataclass(frozen=True, slots=True)
class ListRequest:
    """A request of `batchsched get`: which objects it reads from a cluster, and how it prints them.

    Args:
      credentials: the access to the cluster.
      kind: the kind of the objects.
      namespace: the namespace, "" for all namespaces or a kind without namespaces.
      names: the names of the objects; empty: all objects.
      selector: a label selector, or "".
      output: the output format.
      headers: false to print tables without headings.
    """

    credentials: "CredentialsReader"
    kind: ListedKind
    namespace: str
    names: tuple[str, ...]
    selector: str
    output: OutputFormat
    headers: bool

    @property
    def query_parameters(self) -> dict[str, str]:
        """The query parameters for the list request to the API server, such as the label selector."""
        return {"labelSelector": self.selector} if self.selector else {}


def get(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="podgroups (pg) or queues (bq); or one object: podgroup/NAME or podgroup/NS/NAME.",
            autocompletion=lambda: [listed.plural for listed in KINDS],
            show_default=False,
        ),
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
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="After the list, print each change, until Ctrl-C.")
    ] = False,
    output: ListFormat = OutputFormat.TABLE,
    no_headers: NoHeaders = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """List PodGroups or Queues of a cluster with their status; -o wide adds the reasons.

    The arguments, the columns and the ages have the form that `kubectl get` uses.
    """
    import asyncio

    from batchsched.kube.credentials import CredentialsReader

    listed, chosen, stated_namespace = _parse_kind(kind, tuple(names or ()))
    if stated_namespace and namespace not in {None, stated_namespace}:
        raise typer.BadParameter(
            f"{kind!r} is in the namespace {stated_namespace}; remove --namespace {namespace}"
        )
    namespace = stated_namespace or namespace
    if chosen and all_namespaces and listed.namespaced:
        raise typer.BadParameter(
            "names select objects of one namespace; remove --all-namespaces or the names"
        )
    if chosen and selector:
        raise typer.BadParameter("names and --selector exclude each other; remove one of them")
    if watch and len(chosen) > 1:
        raise typer.BadParameter(
            "expected at most one name; --watch follows one object or all", param_hint="--watch"
        )
    credentials = CredentialsReader(kubeconfig, context)
    everywhere = not listed.namespaced or (all_namespaces and not chosen)
    place = "" if everywhere else namespace or credentials.kubectl_namespace
    request = ListRequest(credentials, listed, place, chosen, selector or "", output, headers=not no_headers)
    answer = asyncio.run(_read(credentials, listed, place, chosen, request.query_parameters))
    widths = _print_answer(request, answer)
    if watch:
        asyncio.run(_watch(request, answer, widths))


def _parse_kind(kind: str, names: tuple[str, ...]) -> tuple[ListedKind, tuple[str, ...], str]:
    """Return the kind, the names and the namespace that the arguments of `batchsched get` state.

    The arguments are `KIND NAME...`, `KIND/NAME` or `KIND/NAMESPACE/NAME`. The namespace is "" if they state none.

    Raises:
      BadParameter: there is no such kind, or both forms are mixed.
    """
    word, slash, path = kind.partition("/")
    namespace, _, name = path.rpartition("/")
    listed = next((known_kind for known_kind in KINDS if word.lower() in known_kind.names), None)
    if listed is None:
        raise typer.BadParameter(f"there is no kind {word!r}; expected podgroups (pg) or queues (bq)")
    if slash and (names or not name or "/" in namespace):
        raise typer.BadParameter(f"{kind!r}: expected KIND/NAME alone, or KIND NAME...")
    if namespace and not listed.namespaced:
        raise typer.BadParameter(f"{kind!r}: {listed.plural} have no namespace; expected {word}/{name}")
    return listed, (name,) if slash else names, namespace


def _print_answer(request: ListRequest, answer: Any) -> Sequence[int] | None:
    """Print the objects in an answer of the API server; return the column widths of a printed table."""
    if not request.output.is_table and request.output is not OutputFormat.NAME:
        print_data(answer, request.output)
        return None
    objects = answer.get("items", ()) if answer["kind"].endswith("List") else [answer]
    if not objects:
        place = f" in {request.namespace} namespace" if request.namespace else ""
        print(f"No {request.kind.plural} found{place}.", file=sys.stderr)
        return None
    return _print_objects(request, objects, None)


def _print_objects(
    request: ListRequest, objects: Sequence[Object], widths: Sequence[int] | None
) -> Sequence[int] | None:
    """Print objects as table rows or as names; if `widths` is given, continue a table without headings."""
    from batchsched.api.crd.base import API_VERSION

    if request.output is OutputFormat.NAME:
        group = API_VERSION.partition("/")[0]
        for content in objects:
            print(f"{request.kind.kind.lower()}.{group}/{value_at_path(content, 'metadata', 'name')}")
        return None
    rows = table_rows(
        request.kind,
        objects,
        time.time(),
        wide=request.output is OutputFormat.WIDE,
        namespaces=request.kind.namespaced and not request.namespace,
    )
    print_aligned(rows, headers=request.headers and widths is None, widths=widths)
    return widths or column_widths(rows)


_SILENT_WATCH_SECONDS: Final = 150.0
"""Seconds without a byte after which a watch counts as lost; the API server sends a bookmark every minute."""
_WATCH_PAUSE_SECONDS: Final = 0.5
"""Pause between two watches, in case that the API server ends each of them immediately."""


async def _watch(request: ListRequest, answer: Any, widths: Sequence[int] | None) -> None:
    """Print each changed object until the command is interrupted.

    Raises:
      ApiError: the API server refuses the watch.
      Unreachable: the connection is lost.
    """
    import asyncio

    import msgspec

    from batchsched.kube.clock import SystemClock
    from batchsched.kube.connection import Connection

    query = {**request.query_parameters, "watch": "1", "allowWatchBookmarks": "true"}
    if request.names:
        query["fieldSelector"] = f"metadata.name={request.names[0]}"
    version = str(value_at_path(answer, "metadata", "resourceVersion") or "")
    path = _resource(request.kind).path(request.namespace)
    async with Connection(request.credentials, SystemClock()) as connection:
        while True:  # the API server ends a watch after some minutes
            lines = connection.watch_lines(path, query | {"resourceVersion": version}, _SILENT_WATCH_SECONDS)
            async for batch in lines:
                for line in batch:
                    event = msgspec.json.decode(line)
                    content = event["object"]
                    if event["type"] == "ERROR":
                        raise _watch_error(content)
                    version = str(value_at_path(content, "metadata", "resourceVersion") or version)
                    if event["type"] != "BOOKMARK":
                        widths = _print_change(request, content, widths)
            await asyncio.sleep(_WATCH_PAUSE_SECONDS)


def _watch_error(status: Any) -> Exception:
    from batchsched.errors import ApiError

    return ApiError(
        int(status.get("code", 0)),
        str(status.get("reason", "")),
        str(status.get("message", "the watch failed")),
    )


def _print_change(
    request: ListRequest, content: Object, widths: Sequence[int] | None
) -> Sequence[int] | None:
    if request.output.is_table or request.output is OutputFormat.NAME:
        widths = _print_objects(request, [content], widths)
    else:
        print_data(content, request.output)
    sys.stdout.flush()  # a reader of a pipe waits for each change
    return widths


def _resource(listed: ListedKind) -> "ApiResource":
    from batchsched.api.crd.base import API_VERSION
    from batchsched.kube.connection import ApiResource

    return ApiResource(API_VERSION, listed.plural, listed.kind, listed.namespaced)


async def _read(
    credentials: "CredentialsReader",
    listed: ListedKind,
    namespace: str,
    names: Sequence[str],
    query: Mapping[str, str],
) -> Any:
    """Return one object if one name is given, otherwise a list.

    Raises:
      CommandError: the API server does not serve this kind.
      BadParameter: an object does not exist.
    """
    import msgspec

    from batchsched.errors import ApiError, CommandError
    from batchsched.kube.clock import SystemClock
    from batchsched.kube.connection import Connection

    resource = _resource(listed)
    try:
        async with Connection(credentials, SystemClock()) as connection:
            if not names:
                raw = await connection.request("GET", resource.path(namespace), query=query, deadline=60.0)
                return msgspec.json.decode(raw)
            objects = [
                msgspec.json.decode(await connection.request("GET", resource.path(namespace, name)))
                for name in names
            ]
    except ApiError as error:
        if error.status != 404:
            raise
        # A 404 for a missing object has a reason in its Status; a 404 for an unknown kind has none.
        if names and error.reason:
            raise typer.BadParameter(_missing_object(listed, names, namespace)) from error
        raise CommandError(
            f"the cluster does not know {listed.plural} of batchsched; `batchsched install` adds the CRDs"
        ) from error
    return objects[0] if len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": objects}


def _missing_object(listed: ListedKind, names: Sequence[str], namespace: str) -> str:
    noun = listed.kind if len(names) == 1 else f"one of the {listed.plural}"
    place = f" in namespace {namespace!r}" if listed.namespaced else ""
    return f"there is no {noun} {', '.join(map(repr, names))}{place}; `batchsched get {listed.plural}` lists them"


def table_rows(
    kind: ListedKind, objects: Iterable[Object], now: float, *, wide: bool, namespaces: bool
) -> list[list[str]]:
    """Return the rows of the table that `batchsched get` prints, as lists of cells with the headings first.

    Args:
      kind: the kind of the objects.
      objects: the objects, one per row.
      now: seconds since 1970.
      wide: true to include the columns of `-o wide`.
      namespaces: true to add the NAMESPACE column.
    """
    columns = [column for column in kind.columns if wide or not column.wide]
    titles = ["NAMESPACE"] * namespaces + ["NAME", *(column.title for column in columns)]
    return [
        titles,
        *(
            [str(value_at_path(content, "metadata", "namespace") or NONE)] * namespaces
            + [
                str(value_at_path(content, "metadata", "name")),
                *(column.cell(content, now) for column in columns),
            ]
            for content in objects
        ),
    ]
