"""The orderings of batch systems, each with its formula.

A gang that states no expected run time counts as one of `DEFAULT_ESTIMATE` seconds. `size` is the gang's number
of pods, the processors of the sources.
"""

from typing import ClassVar, Final

import numpy as np

from batchsched.queues.gang_order.policy import FloatArray, GangColumns

DEFAULT_ESTIMATE: Final = 3600.0
"""Seconds that a gang is taken to run when it does not say."""
SHORTEST: Final = 1.0
"""Seconds below which no run time counts, so that no formula divides by zero."""


def estimates(gangs: GangColumns) -> FloatArray:
    """[G] expected run times in seconds, the default where none is stated."""
    return np.maximum(np.where(np.isnan(gangs.estimate), DEFAULT_ESTIMATE, gangs.estimate), SHORTEST)


class Priority:
    """The highest priority first, then first come, first served: kube-scheduler's PrioritySort, gang by gang."""

    name: ClassVar[str] = "priority"

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Order by priority, then by creation."""
        line = np.lexsort((gangs.created, -gangs.priority))
        priority, created = gangs.priority[line], gangs.created[line]
        places = np.zeros(len(line))
        places[line[1:]] = np.cumsum((priority[1:] != priority[:-1]) | (created[1:] != created[:-1]))
        return places


class Fcfs:
    """First come, first served: key = submission time."""

    name: ClassVar[str] = "fcfs"

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Order by submission."""
        return gangs.created


class Sjf:
    """Shortest job first: key = estimate."""

    name: ClassVar[str] = "sjf"

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Order by expected run time."""
        return estimates(gangs)


class Saf:
    """Smallest area first: key = estimate · share, the share of the cluster that the gang takes.

    Source: Carastan-Santos et al., One Can Only Gain by Replacing EASY Backfilling, CCGrid 2019.
    """

    name: ClassVar[str] = "saf"

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Order by resource-seconds."""
        return estimates(gangs) * gangs.share


class Wfp3:
    """WFP3: key = -(wait / estimate)³ · share: the longer it waited for its length, the sooner.

    Source: Tang et al., Fault-aware utility-based job scheduling on Blue Gene/P systems, CLUSTER 2009.
    """

    name: ClassVar[str] = "wfp3"

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Order by relative wait, weighed by the share of the cluster."""
        return -(((now - gangs.created) / estimates(gangs)) ** 3) * gangs.share


class F1:
    """F1: key = log10(estimate) · size + 870 · log10(submission).

    Source: Carastan-Santos and de Camargo, Obtaining dynamic scheduling policies with simulation and machine
    learning, SC 2017.
    """

    name: ClassVar[str] = "f1"

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Order by the learned formula; submissions count from 1 s on."""
        submitted = np.log10(np.maximum(gangs.created, SHORTEST))
        return np.log10(estimates(gangs)) * gangs.size + 870.0 * submitted
