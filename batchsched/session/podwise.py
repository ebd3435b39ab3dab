"""Pod by pod: the pipeline alone, without the solver.

Each pod goes through PreFilter to Permit by itself, in the queue's order, as in kube-scheduler; GangScheduling's
Permit keeps the members of a gang waiting until its minimum has a place. A gang that is still short of it when its
pods are through gives everything back.
"""

from collections.abc import Iterable

import numpy as np

from batchsched.errors import PluginError
from batchsched.framework.scan import Scan
from batchsched.model.decision import Refusal
from batchsched.model.pod import Pod
from batchsched.session.admission import Admission
from batchsched.session.diagnosis import failed, permit_refusal, unschedulable
from batchsched.session.frame import Frame
from batchsched.session.gang import Gang, GangPart, Members
from batchsched.session.walk import Share, Walk, Walked


class Podwise:
    """One session without the solver."""

    def __init__(self, frame: Frame, admission: Admission, walk: Walk) -> None:
        self._frame = frame
        self._admission = admission
        self._walk = walk
        self.walked: list[Walked] = []
        self.refusals: list[Refusal] = []

    def select(self, waiting: Iterable[Members]) -> None:
        """Take the gangs in order."""
        for members in waiting:
            admitted = self._admission.gang(members)
            if isinstance(admitted, Refusal):
                self.refusals.append(admitted)
            elif admitted.parts:
                self._gang(admitted)

    def _gang(self, gang: Gang) -> None:
        walked = Walked(gang)
        scan: Scan | None = None
        try:
            for part in gang.parts:
                for pod in part.pods:
                    scan = self._pod(walked, part, pod) or scan
        except PluginError as error:
            self._walk.close(walked)
            self.refusals.append(failed(gang, error))
            return
        if self._walk.close(walked):
            self.walked.append(walked)
        elif walked.final:
            self.refusals.append(permit_refusal(walked, timed_out=False))
        elif scan is not None:
            self.refusals.append(unschedulable(gang, scan))

    def _pod(self, walked: Walked, part: GangPart, pod: Pod) -> Scan | None:
        """Place one pod on the node of the highest score, the first of them; returns the scan when none fits."""
        frame = self._frame
        pod_class = part.pod_class.showing(pod) if frame.pipeline.reads_all else part.pod_class
        scan = frame.pipeline.scan(pod_class, frame.table)
        feasible = np.flatnonzero(scan.fits).astype(np.int32)
        if not len(feasible) or walked.final:
            return scan
        total = frame.pipeline.score(pod_class, feasible, frame.table, scan.state)
        node = int(feasible[int(np.argmax(total))])
        share = Share(GangPart(part.pod_class, part.subgroup, (pod,)), (node,), (1,))
        self._walk.add(walked, share, scan.state)
        return None
