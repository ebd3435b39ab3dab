"""Extenders: web services that are called after the plugins, one after the other.

Each extender gets the nodes that the plugins and the earlier extenders left. A failed call fails the pod, unless the
extender is ignorable or the call is Prioritize. Calls go through a port; this module has no network code.

Source: findNodesThatPassExtenders and prioritizeNodes of kube-scheduler's schedule_one.go; extender.go; callExtenders
of framework/preemption; buildExtenders of scheduler.go. Unlike kube-scheduler, after three failures in a row an
extender is not called again in the session: otherwise each of hundreds of gangs would wait for its timeout.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

import numpy as np

from batchsched.api.core.pod import Pod
from batchsched.config.extenders import Extender
from batchsched.errors import ExtenderError
from batchsched.framework.extenders import wire
from batchsched.framework.interface import Leaving
from batchsched.framework.nodes.node_table import NodeTable
from batchsched.framework.status import BoolArray, IndexArray, IntArray, Verdict
from batchsched.ports.external import Endpoint, Extenders, NoExtenders, Tls

T = TypeVar("T")
SCALE: Final = 10
"""Factor from an extender's score, 0 to 10, to a node's score, 0 to 100."""
MAX_FAILURES: Final = 3
"""Failures in a row after which a session no longer calls an extender."""
LEFT_OUT: Final = "extender {url} left the node out"


class ExtenderChain:
    """The extenders of one profile.

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

    def begin(self) -> None:
        """Begin a session: extenders that failed in an earlier one are called again."""
        self._failed.clear()
        self.ignored.clear()

    def interested(self, pod: Pod) -> bool:
        """Return True if an extender manages a resource that the pod requests, or manages all pods."""
        return any(_manages(one, pod) for one in self._extenders)

    def filter(self, pod: Pod, feasible: BoolArray, table: NodeTable) -> list[tuple[str, Verdict]]:
        """Call the extenders' Filter.

        Args:
          pod: the pod to place.
          feasible: [N] the nodes that are still feasible.
          table: all nodes.

        Returns:
          Each extender's verdict about all N nodes, by name. Infeasible nodes are not refused a second time.

        Raises:
          ExtenderError: an extender failed that may not be ignored.
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

            def read(body: str, names: list[str] = names, extender: Extender = extender) -> wire.Filtered:
                answer = wire.filtered(body, by_name=extender.node_cache_capable)
                unknown = sorted(set(answer.nodes).difference(names))
                if unknown:
                    raise wire.Nonsense(f"named the node {unknown[0]!r}, which it was not asked about")
                return answer

            question = _nodes_question(extender, pod, places, table)
            answer = self._ask(extender, extender.filter_verb, question, read, "Filter")
            if answer is not None:
                verdict = _verdict(extender, answer, remaining, table)
                refused.append((extender.url_prefix, verdict))
                remaining &= verdict.fits
        return refused

    def prioritize(self, pod: Pod, places: IndexArray, table: NodeTable) -> IntArray:
        """[n] Return the sum of score times weight of all extenders, to be added to the plugins' scores."""
        total = np.zeros(len(places), np.int64)
        index_of = {table.names[place]: number for number, place in enumerate(places)}
        for extender in self._extenders:
            if not extender.prioritize_verb or not _manages(extender, pod) or not len(places):
                continue
            question = _nodes_question(extender, pod, places, table)
            try:
                scores = self._ask(extender, extender.prioritize_verb, question, wire.prioritized, "Score")
            except ExtenderError as error:
                self._ignore(extender, "Score", error.problem)
                continue
            for name, score in scores or ():
                if name in index_of:
                    total[index_of[name]] += score * extender.weight * SCALE
        return total

    def preempt(
        self, pod: Pod, victims: Mapping[str, Leaving], leaving: Callable[[str], Sequence[Pod] | None]
    ) -> Mapping[str, Leaving]:
        """Call the extenders' Preempt, which may remove nodes and replace victims.

        Args:
          pod: the pending pod.
          victims: node name → victims.
          leaving: returns the pods on a node, by name, that may be evicted; None for an unknown node.

        Raises:
          ExtenderError: an extender failed that may not be ignored, or returned a node without victims.
        """
        for extender in self._extenders:
            if not victims:
                break
            if not extender.preempt_verb or not _manages(extender, pod):
                continue

            def read(body: str, extender: Extender = extender) -> dict[str, Leaving]:
                return _victims(extender, wire.victims(body), leaving)

            question = wire.victims_question(pod, victims, by_uid=extender.node_cache_capable)
            answer = self._ask(extender, extender.preempt_verb, question, read, "PostFilter")
            if answer is not None:
                order = [
                    *(node for node in victims if node in answer),
                    *sorted(answer.keys() - victims.keys()),
                ]
                victims = {node: answer[node] for node in order}
        return victims

    async def bind(self, pod: Pod, node: str) -> bool:
        """Bind a pod through the extender that binds. Return False if there is none, or it failed and may be ignored.

        Raises:
          ExtenderError: the extender failed.
        """
        for extender in self._extenders:
            if not extender.bind_verb or not _manages(extender, pod):
                continue
            question = wire.binding_question(pod, node)
            reply = await self._port.put(_endpoint(extender), extender.bind_verb, question)
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
        reply = self._port.ask(_endpoint(extender), verb, question)
        problem = reply.fault
        if not problem:
            try:
                answer = read(reply.body)
            except wire.Nonsense as error:
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


def _endpoint(extender: Extender) -> Endpoint:
    tls = extender.tls_config
    return Endpoint(
        extender.url_prefix,
        extender.timeout_seconds,
        extender.enable_https,
        Tls(**{name: getattr(tls, name) for name in type(tls).model_fields}),
    )


def _nodes_question(extender: Extender, pod: Pod, places: IndexArray, table: NodeTable) -> bytes:
    if extender.node_cache_capable:
        return wire.nodes_question(pod, None, [table.names[at] for at in places])
    written = table.amended("extenders", _written, partial(_amended, table))
    return wire.nodes_question(pod, [written[at] for at in places], None)


def _written(table: NodeTable) -> list[bytes]:
    return [wire.encode(node) for node in table.nodes]


def _amended(table: NodeTable, written: list[bytes], changed: IndexArray) -> list[bytes]:
    for index in changed.tolist():
        written[index] = wire.encode(table.nodes[index])
    return written


def _verdict(extender: Extender, answer: wire.Filtered, feasible: BoolArray, table: NodeTable) -> Verdict:
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
    answer: Mapping[str, wire.MetaVictims],
    leaving: Callable[[str], Sequence[Pod] | None],
) -> dict[str, Leaving]:
    accepted: dict[str, Leaving] = {}
    for node in sorted(answer):
        candidates = leaving(node)
        if candidates is None:
            raise wire.Nonsense(f"named the node {node!r}, which does not exist")
        pod_of = {wire.uid_of(one): one for one in candidates}
        missing = [uid for uid in answer[node].uids if uid not in pod_of]
        if missing:
            raise wire.Nonsense(
                f"names the victim {missing[0]!r}, which is no pod of node {node!r} that may be"
            )
        pods = tuple(pod_of[uid] for uid in answer[node].uids)
        if pods:
            accepted[node] = (pods, answer[node].violations)
        elif not extender.ignorable:
            raise wire.Nonsense(f"expected at least one victim pod on node {node!r}")
    return accepted


def _binding_problem(body: str) -> str:
    try:
        return wire.binding_error(body)
    except wire.Nonsense as error:
        return str(error)
