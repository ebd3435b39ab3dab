"""Scheduler extenders: web services that filter and score nodes after the plugins, one after the other.

Each extender gets the nodes that the plugins and the earlier extenders left. A failed call fails the pod, unless the
extender is ignorable or the call is Prioritize. Calls go through a port; this module has no network code.

The format is that of kube-scheduler's extender/v1. The field names are those of Go structs (`NodeNames`,
`FailedNodes`); answers may have them in any case. Pods and nodes are in the Kubernetes format, with the fields that
batchsched keeps. Equal calls have equal bytes.

Source: k8s.io/kube-scheduler/extender/v1/types.go; findNodesThatPassExtenders and prioritizeNodes of kube-scheduler's
schedule_one.go; extender.go; callExtenders of framework/preemption; buildExtenders of scheduler.go. Unlike
kube-scheduler, after three failures in a row an extender is not called again in the session: otherwise each of
hundreds of gangs would wait for its timeout.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from batchsched.api.core.node import Node
from batchsched.api.core.pod import Pod
from batchsched.api.json_errors import to_field_error
from batchsched.config.extenders import Extender
from batchsched.errors import ExtenderError
from batchsched.framework.interface import NodeVictims
from batchsched.framework.nodes.node_table import Nodes, NodeTable
from batchsched.framework.status import BoolArray, IndexArray, IntArray, Verdict
from batchsched.ports.external import ExtenderEndpoint, Extenders, ExtenderTlsSettings, NoExtenders

T = TypeVar("T")

LARGEST_SCORE: Final = 2**31 - 1
_ENCODER: Final = msgspec.json.Encoder(order="sorted")
"""Sorted keys: a session that is read from a file must send the same bytes as the recorded one."""
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)


class InvalidExtenderAnswer(ValueError):
    """Raised if an extender's answer reports an error, or does not have the format of the called verb."""


@dataclass(frozen=True, slots=True)
class ExtenderFilterAnswer:
    """The decoded answer of an extender to the filter verb.

    Args:
      nodes: names of the nodes that fit.
      failed: node name → reason.
      unresolvable: node name → reason, for nodes where evictions cannot help.
    """

    nodes: tuple[str, ...]
    failed: Mapping[str, str]
    unresolvable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MetaVictims:
    """An extender's victims on one node by UID, and how many disruption budgets their eviction violates."""

    uids: tuple[str, ...]
    violations: int


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _Item(msgspec.Struct, frozen=True):
    metadata: _Named = _Named()


class _Items(msgspec.Struct, frozen=True):
    items: tuple[_Item, ...] | None = None


def encode_pod_or_node(value: Pod | Node) -> bytes:
    """Return a Pod or Node as JSON in the Kubernetes format. Empty parts of the object are written, too."""
    return _ENCODER.encode({name: getattr(value, name) for name in value.__struct_encode_fields__})


def encode_extender_args(pod: Pod, nodes: Sequence[bytes] | None, names: Sequence[str] | None) -> bytes:
    """Return the body of an extender's filter or prioritize call, with Node objects or with only their names."""
    listed = b"null" if nodes is None else b'{"metadata":{},"items":[' + b",".join(nodes) + b"]}"
    named = b"null" if names is None else msgspec.json.encode(names)
    return b'{"Pod":' + encode_pod_or_node(pod) + b',"Nodes":' + listed + b',"NodeNames":' + named + b"}"


def encode_preemption_args(
    pod: Pod, victims: Mapping[str, tuple[Sequence[Pod], int]], *, by_uid: bool
) -> bytes:
    """Return the body of an extender's preempt call: for each node its victims and the number of violated budgets."""
    field = "NodeNameToMetaVictims" if by_uid else "NodeNameToVictims"
    by_node = {}
    for node, (pods, violations) in victims.items():
        listed = [
            {"UID": uid_or_key(pod)} if by_uid else msgspec.Raw(encode_pod_or_node(pod)) for pod in pods
        ]
        by_node[node] = {"Pods": listed, "NumPDBViolations": violations}
    return _ENCODER.encode({"Pod": msgspec.Raw(encode_pod_or_node(pod)), field: by_node})


def uid_or_key(pod: Pod) -> str:
    """Return a pod's uid, or its `namespace/name` if it has no uid because it was read from a manifest."""
    return pod.metadata.uid or pod.key


def encode_binding_args(pod: Pod, node: str) -> bytes:
    """Return the body of an extender's bind call, which names the pod and the node."""
    return _ENCODER.encode(
        {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.metadata.uid, "Node": node}
    )


def decode_extender_filter_answer(body: str, *, by_name: bool) -> ExtenderFilterAnswer:
    """Decode an extender's answer to the filter verb.

    Args:
      body: the answer.
      by_name: the call had node names, and the answer may have names.

    Raises:
      InvalidExtenderAnswer: the answer has another format, or reports an error.
    """
    fields = _fields(body.encode())
    error = _read(fields, "error", str, "")
    if error:
        raise InvalidExtenderAnswer(error)
    names = _read(fields, "nodenames", tuple[str, ...], None) if by_name else None
    if names is None:
        listed = _read(fields, "nodes", _Items, None)
        names = tuple(one.metadata.name for one in (listed.items or ())) if listed is not None else ()
    return ExtenderFilterAnswer(
        names,
        _read(fields, "failednodes", dict[str, str], {}),
        _read(fields, "failedandunresolvablenodes", dict[str, str], {}),
    )


def decode_scores(body: str) -> list[tuple[str, int]]:
    """Return the (node name, score) pairs in an extender's answer to the prioritize verb.

    Raises:
      InvalidExtenderAnswer: the answer has another format.
    """
    scores = []
    for item in _decoded(body.encode(), list[msgspec.Raw] | None) or ():
        fields = _fields(item)
        score = _read(fields, "score", int, 0)
        if abs(score) > LARGEST_SCORE:
            raise InvalidExtenderAnswer(
                f"expected a score from {-LARGEST_SCORE} to {LARGEST_SCORE}, found {score}"
            )
        scores.append((_read(fields, "host", str, ""), score))
    return scores


def decode_victims(body: str) -> dict[str, MetaVictims]:
    """Return the victims by node name in an extender's answer to the preempt verb.

    Raises:
      InvalidExtenderAnswer: the answer has another format.
    """
    by_node = _read(_fields(body.encode()), "nodenametometavictims", dict[str, msgspec.Raw], {})
    return {node: _meta_victims(raw) for node, raw in by_node.items()}


def _meta_victims(raw: msgspec.Raw) -> MetaVictims:
    fields = _fields(raw)
    pods = _read(fields, "pods", list[msgspec.Raw], [])
    uids = tuple(_read(_fields(one), "uid", str, "") for one in pods)
    return MetaVictims(uids, _read(fields, "numpdbviolations", int, 0))


def _fields(raw: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Return an object's fields by lower-case name. Null gives no fields, as in Go."""
    try:
        return {name.lower(): value for name, value in (_OBJECT.decode(raw) or {}).items()}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidExtenderAnswer(f"is no answer: {to_field_error(error)}") from error


def _read(fields: Mapping[str, msgspec.Raw], name: str, kind: Any, default: T) -> Any:
    raw = fields.get(name)
    value = None if raw is None else _decoded(raw, kind | None)
    return default if value is None else value


def _decoded(raw: bytes | msgspec.Raw, kind: Any) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidExtenderAnswer(f"is no answer: {to_field_error(error)}") from error


SCALE: Final = 10
"""Factor from an extender's score, 0 to 10, to a node's score, 0 to 100."""
MAX_FAILURES: Final = 3
"""Failures in a row after which a session no longer calls an extender."""
LEFT_OUT: Final = "extender {url} left the node out"


class ExtenderChain:
    """The scheduler extenders of one profile, which are called one after the other.

    Args:
      extenders: the configuration of each extender. Ignorable extenders are called last.
      port: makes the calls.
    """

    def __init__(self, extenders: Sequence[Extender] = (), port: Extenders | None = None) -> None:
        self._extenders = tuple(sorted(extenders, key=lambda extender: extender.ignorable))
        self._port = port or NoExtenders()
        self._failed: dict[str, int] = {}
        self.ignored: dict[str, str] = {}
        """Failures of ignorable extenders in this session: message → extender."""

    def __len__(self) -> int:
        """The number of extenders."""
        return len(self._extenders)

    def forget_extender_failures(self) -> None:
        """Forget which extenders failed in the last session, so that the new session calls all extenders again."""
        self._failed.clear()
        self.ignored.clear()

    def is_interested(self, pod: Pod) -> bool:
        """Return True if an extender manages a resource that the pod requests, or manages all pods."""
        return any(_manages(one, pod) for one in self._extenders)

    def filter(self, pod: Pod, feasible: BoolArray, table: NodeTable) -> list[tuple[str, Verdict]]:
        """Call the filter verb of the extenders for a pod, and return the nodes that each extender refuses.

        Args:
          pod: the pod to place.
          feasible: [N] the nodes that are still feasible.
          table: all nodes.

        Returns:
          Each extender's verdict about all N nodes, by name. Infeasible nodes are not refused a second time.

        Raises:
          ExtenderError: an extender that may not be ignored failed.
        """
        refused: list[tuple[str, Verdict]] = []
        remaining = feasible.copy()
        for extender in self._extenders:
            if not remaining.any():
                break
            if not extender.filter_verb or not _manages(extender, pod):
                continue
            places = np.flatnonzero(remaining).astype(np.int32)
            names = [table.names[at] for at in places]

            def read_filter_answer(
                body: str, names: list[str] = names, extender: Extender = extender
            ) -> ExtenderFilterAnswer:
                answer = decode_extender_filter_answer(body, by_name=extender.node_cache_capable)
                unknown = sorted(set(answer.nodes).difference(names))
                if unknown:
                    raise InvalidExtenderAnswer(
                        f"named the node {unknown[0]!r}, which it was not asked about"
                    )
                return answer

            question = _nodes_question(extender, pod, places, table)
            answer = self._ask(extender, extender.filter_verb, question, read_filter_answer, "Filter")
            if answer is not None:
                verdict = _verdict(extender, answer, remaining, table)
                refused.append((extender.url_prefix, verdict))
                remaining &= verdict.feasible_mask
        return refused

    def prioritize(self, pod: Pod, places: IndexArray, table: NodeTable) -> IntArray:
        """Return for each node the weighted sum of the scores that the extenders gave it.

        Scores from 0 to 10 become scores from 0 to 100 before they are weighted. The scores of plugins are not
        included. If an extender fails, its scores are missing in the sum.
        """
        total = np.zeros(len(places), np.int64)
        index_of = {table.names[place]: number for number, place in enumerate(places)}
        for extender in self._extenders:
            if not extender.prioritize_verb or not _manages(extender, pod) or not len(places):
                continue
            question = _nodes_question(extender, pod, places, table)
            try:
                scores = self._ask(extender, extender.prioritize_verb, question, decode_scores, "Score")
            except ExtenderError as error:
                self._ignore(extender, "Score", error.problem)
                continue
            for name, score in scores or ():
                if name in index_of:
                    total[index_of[name]] += score * extender.weight * SCALE
        return total

    def preempt(
        self, pod: Pod, victims: Mapping[str, NodeVictims], leaving: Callable[[str], Sequence[Pod] | None]
    ) -> Mapping[str, NodeVictims]:
        """Call the preempt verb of the extenders, and return the victims that they chose on each node.

        The extenders may replace victims, and may drop nodes.

        Args:
          pod: the pending pod.
          victims: node name → victims.
          leaving: returns the pods that may be evicted from a node, given its name; None for an unknown node.

        Raises:
          ExtenderError: an extender that may not be ignored failed, or returned a node without victims.
        """
        for extender in self._extenders:
            if not victims:
                break
            if not extender.preempt_verb or not _manages(extender, pod):
                continue

            def read_victims_by_node(body: str, extender: Extender = extender) -> dict[str, NodeVictims]:
                return _victims(extender, decode_victims(body), leaving)

            question = encode_preemption_args(pod, victims, by_uid=extender.node_cache_capable)
            answer = self._ask(extender, extender.preempt_verb, question, read_victims_by_node, "PostFilter")
            if answer is not None:
                order = [
                    *(node for node in victims if node in answer),
                    *sorted(answer.keys() - victims.keys()),
                ]
                victims = {node: answer[node] for node in order}
        return victims

    async def bind(self, pod: Pod, node: str) -> bool:
        """Bind a pod to a node through the first extender with a bind verb that manages the pod.

        Return False if there is no such extender, or if it failed and may be ignored.

        Raises:
          ExtenderError: the extender failed and may not be ignored.
        """
        for extender in self._extenders:
            if not extender.bind_verb or not _manages(extender, pod):
                continue
            question = encode_binding_args(pod, node)
            reply = await self._port.send_bind_request(_endpoint(extender), extender.bind_verb, question)
            problem = reply.fault or _binding_problem(reply.body)
            if problem and not extender.ignorable:
                raise ExtenderError(extender.url_prefix, "Bind", problem)
            return not problem
        return False

    def _ask(
        self, extender: Extender, verb: str, question: bytes, read: Callable[[str], T], point: str
    ) -> T | None:
        """Return the decoded answer; None if the call failed and the extender may be ignored."""
        url = extender.url_prefix
        if self._failed.get(url, 0) >= MAX_FAILURES:
            self._fail(extender, point, f"is asked no more in this session: it failed {MAX_FAILURES} times")
            return None
        reply = self._port.send_request(_endpoint(extender), verb, question)
        problem = reply.fault
        if not problem:
            try:
                answer = read(reply.body)
            except InvalidExtenderAnswer as error:
                problem = str(error)
            else:
                self._failed.pop(url, None)
                return answer
        self._failed[url] = self._failed.get(url, 0) + 1
        self._fail(extender, point, problem)
        return None

    def _fail(self, extender: Extender, point: str, problem: str) -> None:
        if not extender.ignorable:
            raise ExtenderError(extender.url_prefix, point, problem)
        self._ignore(extender, point, problem)

    def _ignore(self, extender: Extender, point: str, problem: str) -> None:
        self.ignored.setdefault(f"{point}: {problem}; the session continued without it", extender.url_prefix)


def _manages(extender: Extender, pod: Pod) -> bool:
    """Return True if the extender manages a resource that the pod requests, or manages all pods."""
    managed = {one.name for one in extender.managed_resources}
    if not managed:
        return True
    for container in (*pod.spec.containers, *(pod.spec.init_containers or ())):
        resources = container.resources
        if resources and not managed.isdisjoint({*(resources.requests or ()), *(resources.limits or ())}):
            return True
    return False


def _endpoint(extender: Extender) -> ExtenderEndpoint:
    tls = extender.tls_config
    return ExtenderEndpoint(
        extender.url_prefix,
        extender.timeout_seconds,
        extender.enable_https,
        ExtenderTlsSettings(**{name: getattr(tls, name) for name in type(tls).model_fields}),
    )


def _nodes_question(extender: Extender, pod: Pod, places: IndexArray, table: NodeTable) -> bytes:
    if extender.node_cache_capable:
        return encode_extender_args(pod, None, [table.names[at] for at in places])
    written = table.cached_array("extenders", _encode_each)
    return encode_extender_args(pod, [written[at] for at in places], None)


def _encode_each(nodes: Nodes) -> NDArray[np.object_]:
    return np.fromiter((encode_pod_or_node(node) for node in nodes.node_objects), np.object_, len(nodes))


def _verdict(
    extender: Extender, answer: ExtenderFilterAnswer, feasible: BoolArray, table: NodeTable
) -> Verdict:
    """Return the verdict about all nodes. A node that is missing without a reason is unresolvable."""
    kept = set(answer.nodes)
    silent = LEFT_OUT.format(url=extender.url_prefix)
    count = len(table.names)
    places = [at for at in np.flatnonzero(feasible).tolist() if table.names[at] not in kept]
    reason_of: dict[int, str] = {}
    unresolvable = np.zeros(count, np.bool_)
    for index in places:
        name = table.names[index]
        reason_of[index] = answer.unresolvable.get(name) or answer.failed.get(name) or silent
        unresolvable[index] = name in answer.unresolvable or name not in answer.failed
    reasons = tuple(dict.fromkeys(reason_of.values()))
    number = {reason: k for k, reason in enumerate(reasons)}
    refused = np.zeros((len(reasons), count), np.bool_)
    for index, reason in reason_of.items():
        refused[number[reason], index] = True
    return Verdict(reasons, refused, unresolvable)


def _victims(
    extender: Extender,
    answer: Mapping[str, MetaVictims],
    leaving: Callable[[str], Sequence[Pod] | None],
) -> dict[str, NodeVictims]:
    accepted: dict[str, NodeVictims] = {}
    for node in sorted(answer):
        candidates = leaving(node)
        if candidates is None:
            raise InvalidExtenderAnswer(f"named the node {node!r}, which does not exist")
        pod_of = {uid_or_key(one): one for one in candidates}
        missing = [uid for uid in answer[node].uids if uid not in pod_of]
        if missing:
            raise InvalidExtenderAnswer(
                f"names the victim {missing[0]!r}, which is no pod of node {node!r} that may be"
            )
        pods = tuple(pod_of[uid] for uid in answer[node].uids)
        if pods:
            accepted[node] = (pods, answer[node].violations)
        elif not extender.ignorable:
            raise InvalidExtenderAnswer(f"expected at least one victim pod on node {node!r}")
    return accepted


def _binding_problem(body: str) -> str:
    """Return the error of an answer to bind, "" if the pod is bound."""
    try:
        return str(_read(_fields(body.encode()), "error", str, ""))
    except InvalidExtenderAnswer as error:
        return str(error)
