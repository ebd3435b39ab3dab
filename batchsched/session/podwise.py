"""Pod by pod: the pipeline alone, without the solver.

Each pod goes through PreFilter to Permit by itself, in the queue's order, as in kube-scheduler; GangScheduling's
Permit keeps the members of a gang waiting until its minimum has a place. A gang that is still short of it when its
pods are through gives everything back. What kube-scheduler does not know holds here, too: limits of queues and
required levels. A gang whose first pod led it into a domain that is too small tries the others, one by one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from batchsched.errors import PluginError
from batchsched.framework.scan import Scan
from batchsched.framework.status import IntArray
from batchsched.model.decision import Refusal
from batchsched.model.pod import Pod
from batchsched.session.admission import Admission
from batchsched.session.diagnosis import failed, no_domain, over_limit, permit_refusal, unschedulable
from batchsched.session.fence import Fence
from batchsched.session.formulation import Scene
from batchsched.session.gang import Gang, GangPart, Members
from batchsched.session.quotas import Quotas, spend
from batchsched.session.walk import Share, Walk, Walked


@dataclass(slots=True)
class Trial:
    """One try at a gang.

    Args:
      walked: what was placed so far.
      fence: the domains that it keeps to.
      used: [R] what was placed asks for.
      scan: why a pod had no node at all, the last of them.
      fenced: a pod had nodes, but none inside the fence.
      queue: the queue whose limit kept a pod out, "" for none.
      missed: pods that found no place.
      failure: the plugin that broke.
    """

    walked: Walked
    fence: Fence
    used: IntArray
    scan: Scan | None = None
    fenced: bool = False
    queue: str = ""
    missed: int = 0
    failure: PluginError | None = None


class Podwise:
    """One session without the solver."""

    def __init__(self, scene: Scene, admission: Admission, walk: Walk) -> None:
        self._scene = scene
        self._frame = scene.frame
        self._admission = admission
        self._walk = walk
        self._quotas: Quotas = scene.quotas
        self.walked: list[Walked] = []
        self.refusals: list[Refusal] = []

    def select(self, waiting: Iterable[Members]) -> None:
        """Take the gangs in order."""
        for members in waiting:
            admitted = self._admission.gang(members)
            if isinstance(admitted, Refusal):
                self.refusals.append(admitted)
            elif admitted.parts:
                refusal = self.take(admitted)
                if refusal is not None and admitted.need > 0:
                    self.refusals.append(refusal)

    def take(self, gang: Gang) -> Refusal | None:
        """Place one gang, all or nothing; returns why it is refused, None when it has its place."""
        first: Trial | None = None
        for fence in self._fences(gang):
            trial = self._try(gang, fence)
            if self._walk.close(trial.walked):
                self.walked.append(trial.walked)
                self._quotas = spend(self._quotas, self._frame, trial.walked)
                return None
            first = first or trial
            if trial.failure or trial.walked.final or trial.queue:
                first = trial
                break
        return _refusal(gang, first) if first is not None else no_domain(gang)

    def _fences(self, gang: Gang) -> Iterator[Fence]:
        fence = Fence.of(self._scene, gang)
        yield Fence.of(self._scene, gang)
        yield from fence.each()

    def _try(self, gang: Gang, fence: Fence) -> Trial:
        trial = Trial(Walked(gang), fence, np.zeros(len(self._frame.table.resources), np.int64))
        trial.queue = self._quotas.lacking(self._frame, gang.queue, trial.used, int(gang.fresh))
        if trial.queue:
            return trial
        try:
            for part in gang.parts:
                for pod in part.pods:
                    if trial.walked.final or trial.missed > gang.size - gang.need:
                        return trial
                    trial.missed += not self._pod(trial, part, pod)
        except PluginError as error:
            trial.failure = error
        return trial

    def _pod(self, trial: Trial, part: GangPart, pod: Pod) -> bool:
        """Place one pod on the node of the highest score, the first of them; tell whether it has one."""
        frame = self._frame
        used = trial.used + part.pod_class.requests
        over = self._quotas.lacking(frame, trial.walked.gang.queue, used, 0)
        if over:
            trial.queue = over
            return False
        pod_class = part.pod_class.showing(pod) if frame.pipeline.reads_all else part.pod_class
        standing = frame.standings.of(part.pod_class)
        scan = frame.pipeline.scan(pod_class, frame.table, standing)
        if not scan.fits.any():
            trial.scan = scan
            return False
        allowed = trial.fence.allows(part.subgroup)
        feasible = np.flatnonzero(scan.fits if allowed is None else scan.fits & allowed).astype(np.int32)
        if not len(feasible):
            trial.fenced = True
            return False
        total = frame.pipeline.score(pod_class, feasible, frame.table, scan.state, standing)
        node = int(feasible[int(np.argmax(total))])
        share = Share(GangPart(part.pod_class, part.subgroup, (pod,)), (node,), (1,))
        self._walk.add(trial.walked, share, scan.state)
        if not trial.walked.refusal.ok:
            return False
        trial.fence.enter(part.subgroup, node)
        trial.used = used
        return True


def _refusal(gang: Gang, trial: Trial) -> Refusal:
    if trial.failure is not None:
        return failed(gang, trial.failure)
    if trial.walked.final:
        return permit_refusal(trial.walked, timed_out=False)
    if trial.queue:
        return over_limit(gang, trial.queue)
    if trial.scan is not None and not trial.fenced:
        return unschedulable(gang, trial.scan)
    return no_domain(gang)
