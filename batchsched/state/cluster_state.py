"""The cache: watch events in, Snapshots and changes out.

An object is known by the last event about it. Events of one object may be repeated, late or missing: what is older
than what is known is passed over, what was deleted stays so, and a list is the truth. Events of different objects may
come in any order: a pod on a node that is not known yet counts there as soon as the node is.

A pod that a decision placed is **assumed**: it counts on its node until the watch **confirms** it, on that node or on
another (the API is right), the binding failed and it is **forgotten**, or the binding has finished, nobody confirmed
it, and it **expires**.

Source: `pkg/scheduler/backend/cache` of kube-scheduler, 1.36. Waiting pods are kept here, too: sessions decide on them.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from batchsched.api.core.pod import SCHEDULER_NAME, Pod
from batchsched.api.cross_checks import misplaced_queues
from batchsched.api.decision import SetAside
from batchsched.api.kinds import ALL
from batchsched.api.snapshot import Snapshot
from batchsched.state.assumed_pods import AssumedPod, Assumption, Placements
from batchsched.state.change_log import LENGTH, Change, ChangeLog
from batchsched.state.semantic_equality import alike
from batchsched.state.store import Store
from batchsched.state.tombstones import Tombstones

PODS: Final = "pods"
NODES: Final = "nodes"
_KINDS: Final = {kind.type: kind for kind in ALL}


class ClusterState:
    """What is known of one cluster.

    Args:
      scheduler_names: whose waiting pods count; those of other schedulers are passed over until they are bound.
      ttl_seconds: how long after its binding a pod stays assumed without a confirmation; 0: for ever, as upstream.
      journal_length: changes that are kept for followers.
    """

    def __init__(
        self,
        scheduler_names: Iterable[str] = (SCHEDULER_NAME,),
        ttl_seconds: float = 0.0,
        journal_length: int = LENGTH,
    ) -> None:
        self.scheduler_names = frozenset(scheduler_names)
        self._ttl = ttl_seconds
        self._journal = ChangeLog(journal_length)
        self._shelves: dict[str, Store[Any]] = {kind.field: Store() for kind in ALL}
        self._versions: dict[tuple[str, str], int] = {}
        self._graves = Tombstones()
        self._told: dict[str, Pod] = {}
        """Assumed pods as the API showed them last."""
        self._assumed: dict[str, Assumption] = {}
        self._placements = Placements()
        self._snapshot: tuple[int, Snapshot] = (0, Snapshot())

    # Events

    def put(self, found: Any, version: str | None = None) -> None:
        """Take in an object that was added or changed.

        Args:
          found: the object, of any kind that a Snapshot holds.
          version: its resourceVersion, where its metadata does not carry it.

        Raises:
          KeyError: a kind that no Snapshot holds.
        """
        self._put(found, _number(found, version), listed=False)

    def remove(self, gone: Any) -> None:
        """Take in that an object was deleted.

        Its last state may be stale: only its name and its uid count. Another object of its name, younger, stays.
        """
        field, key = _place(gone)
        uid = gone.metadata.uid
        self._graves.bury(uid)
        known = self._shelves[field].get(key)
        if known is not None and uid and known.metadata.uid and known.metadata.uid != uid:
            return
        self._drop(field, key)

    def replace(self, kind: type, listed: Iterable[Any]) -> None:
        """Take in a fresh list of one kind: what it does not name is gone, what it names is so."""
        field = _KINDS[kind].field
        alive = set()
        for one in listed:
            alive.add(_place(one)[1])
            self._graves.open(one.metadata.uid)
            self._put(one, _number(one, None), listed=True)
        for key in sorted(set(self._shelves[field]) - alive):
            self._bury(field, key)

    def _bury(self, field: str, key: str) -> None:
        known = self._shelves[field].get(key)
        if known is not None:
            self._graves.bury(known.metadata.uid)
            self._drop(field, key)

    def _put(self, found: Any, version: int, *, listed: bool) -> None:
        field, key = _place(found)
        known = self._told.get(key) if field == PODS else None
        known = known or self._shelves[field].get(key)
        if not listed and self._late(field, key, found, version):
            return
        if known is not None and _another(known, found):
            self._bury(field, key)
            known = None
        if version:
            self._versions[field, key] = version
        if field == PODS:
            self._put_pod(key, known, found)
        elif known is None or not alike(known, found):
            self._show(field, key, found)

    def _late(self, field: str, key: str, found: Any, version: int) -> bool:
        if found.metadata.uid in self._graves:
            return True
        return 0 < version <= self._versions.get((field, key), 0)

    def _put_pod(self, key: str, known: Pod | None, pod: Pod) -> None:
        if not pod.counts(self.scheduler_names):
            if pod.finished:
                self._graves.bury(pod.metadata.uid)
            self._drop(PODS, key)
            return
        assumption = self._assumed.get(key)
        if assumption is not None and not pod.node:
            if known is None or not alike(known, pod):
                self._told[key] = pod
                self._show(PODS, key, self._placements.place(pod, assumption.node))
            return
        shown: Pod | None = self._shelves[PODS].get(key)
        if assumption is not None:
            del self._assumed[key], self._told[key]
        if shown is None or not alike(shown, pod):
            if shown is not None and shown.spec == pod.spec:  # a spec that is known is worked out already
                pod = Pod(metadata=pod.metadata, spec=shown.spec, status=pod.status)
            self._show(PODS, key, pod)

    def _drop(self, field: str, key: str) -> None:
        self._versions.pop((field, key), None)
        if field == PODS:
            self._assumed.pop(key, None)
            self._told.pop(key, None)
        if key in self._shelves[field]:
            self._show(field, key, None)

    def _show(self, field: str, key: str, after: Any) -> None:
        """Change what a Snapshot shows of an object; None takes it away."""
        shelf = self._shelves[field]
        before = shelf.get(key)
        if after is None:
            shelf.pop(key)
        else:
            shelf.put(key, after)
        self._journal.note(Change(field, key, before, after))

    # Decisions

    def assume(self, key: str, node: str, now: float, uid: str = "") -> bool:
        """Let a waiting pod count on a node from now on.

        Args:
          key: the pod's `namespace/name`.
          node: where the decision placed it.
          now: seconds since 1970.
          uid: the pod that was decided on, where it is known.

        Returns:
          False, and nothing changed, when the decision has been overtaken: the pod is gone, finished, leaving,
          bound, assumed already or another one of its name, or the node is gone.
        """
        pod: Pod | None = self._shelves[PODS].get(key)
        if pod is None or pod.node or pod.terminating or node not in self._shelves[NODES]:
            return False
        if uid and pod.metadata.uid and uid != pod.metadata.uid:
            return False
        self._told[key] = pod
        self._assumed[key] = Assumption(node, now)
        self._show(PODS, key, self._placements.place(pod, node))
        return True

    def finish_binding(self, key: str, now: float) -> None:
        """Note that the API took the binding of an assumed pod: it may expire from now + ttl on."""
        known = self._assumed.get(key)
        if known is not None and self._ttl > 0:
            self._assumed[key] = Assumption(known.node, known.since, now + self._ttl)

    def forget(self, key: str, node: str) -> bool:
        """Let an assumed pod wait again: its binding failed.

        Returns:
          False, and nothing changed, when it is not assumed on that node any more.
        """
        known = self._assumed.get(key)
        if known is None or known.node != node:
            return False
        del self._assumed[key]
        self._show(PODS, key, self._told.pop(key))
        return True

    def expire(self, now: float) -> tuple[AssumedPod, ...]:
        """Let pods wait again whose binding finished, and whom nobody confirmed in time; returns them by name."""
        overdue = self.overdue(now)
        for one in overdue:
            self.forget(one.pod, one.assumption.node)
        return overdue

    def overdue(self, now: float) -> tuple[AssumedPod, ...]:
        """Return the pods whose binding finished, and whom nobody confirmed in time, by name."""
        found = [
            key
            for key, known in self._assumed.items()
            if known.deadline is not None and known.deadline <= now
        ]
        return tuple(AssumedPod(key, self._assumed[key]) for key in sorted(found))

    # What followers ask

    @property
    def generation(self) -> int:
        """Grows with every change of what a Snapshot shows."""
        return self._journal.generation

    def changes(self, since: int) -> tuple[Change, ...] | None:
        """Return what changed after a generation, one change an object; None when that is too long ago."""
        return self._journal.since(since)

    def size(self, field: str) -> int:
        """Return how many objects a field of Snapshot holds."""
        return len(self._shelves[field])

    def snapshot(self) -> Snapshot:
        """Return the cluster as it stands, assumed pods on their nodes; objects that did not change are the same ones.

        Objects are in the order of their keys. Queues without a place in the tree are set aside. Nothing is held: the
        caller knows who waits at Permit.
        """
        if self._snapshot[0] != self.generation:
            self._snapshot = (self.generation, _well_placed(self._frozen()))
        return self._snapshot[1]

    def _frozen(self) -> Snapshot:
        return Snapshot(**{field: shelf.freeze() for field, shelf in self._shelves.items()})

    def listed(self) -> Snapshot:
        """Return the cluster as the API told it: assumed pods wait."""
        frozen = self._frozen()
        return replace(frozen, pods=tuple(self._told.get(pod.key, pod) for pod in frozen.pods))

    def assumed(self) -> tuple[AssumedPod, ...]:
        """Return the pods that are assumed, by name."""
        return tuple(AssumedPod(key, self._assumed[key]) for key in sorted(self._assumed))

    def is_assumed(self, key: str) -> bool:
        """Tell whether a pod counts on a node that no watch has confirmed."""
        return key in self._assumed

    def get(self, field: str, key: str) -> Any:
        """Return one object of a field of Snapshot by its key; None where there is none."""
        return self._shelves[field].get(key)

    def every(self, field: str) -> tuple[Any, ...]:
        """Return all objects of a field of Snapshot, also those that a Snapshot sets aside."""
        return tuple(self._shelves[field].freeze())

    def has_node(self, name: str) -> bool:
        """Tell whether a node is known; pods may name others."""
        return name in self._shelves[NODES]


def _place(found: Any) -> tuple[str, str]:
    """Return the field of an object and its key there."""
    kind = _KINDS[type(found)]
    return kind.field, kind.key(found.metadata)


def _well_placed(snapshot: Snapshot) -> Snapshot:
    """Set aside the queues that have no place in the tree; a parent may just be on its way."""
    reasons = misplaced_queues(snapshot.queues)
    if not reasons:
        return snapshot
    return replace(
        snapshot,
        queues=tuple(queue for queue in snapshot.queues if queue.name not in reasons),
        set_aside=tuple(
            SetAside("", f"Queue {name}", "spec.parent", reasons[name]) for name in sorted(reasons)
        ),
    )


def _number(found: Any, version: str | None) -> int:
    """Read a resourceVersion, which grows within a kind; 0 where there is none."""
    text = getattr(found.metadata, "resource_version", "") if version is None else version
    return int(text) if text.isdecimal() else 0


def _another(known: Any, found: Any) -> bool:
    """Tell whether an object has only the name of the one that is known."""
    old, new = known.metadata.uid, found.metadata.uid
    return bool(old and new and old != new)
