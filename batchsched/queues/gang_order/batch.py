"""Gang orders of classical batch systems, each with its formula.

If a gang states no expected run time, `DEFAULT_RUNTIME_SECONDS` is used. `size` is the number of pods of the gang; the
sources call it the number of processors.
"""

from typing import ClassVar, Final

import numpy as np

from batchsched.queues.gang_order.policy import FloatArray, GangColumns

DEFAULT_RUNTIME_SECONDS: Final = 3600.0
"""Run time in seconds that is assumed for a gang without an expected run time."""
MIN_RUNTIME_SECONDS: Final = 1.0
"""Minimum run time in seconds in formulas, which prevents division by zero."""


def estimates(gangs: GangColumns) -> FloatArray:
    """Return [G] expected run times in seconds, with the default for gangs that state none."""
    return np.maximum(
        np.where(np.isnan(gangs.estimate), DEFAULT_RUNTIME_SECONDS, gangs.estimate), MIN_RUNTIME_SECONDS
    )


class Priority:
    """Highest priority first, then first come, first served: PrioritySort of kube-scheduler, applied to gangs."""

    name: ClassVar[str] = "priority"

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return keys that order by priority, then by creation time."""
        line = np.lexsort((gangs.created, -gangs.priority))
        priority, created = gangs.priority[line], gangs.created[line]
        places = np.zeros(len(line))
        places[line[1:]] = np.cumsum((priority[1:] != priority[:-1]) | (created[1:] != created[:-1]))
        return places


class Fcfs:
    """First come, first served: key = submission time."""

    name: ClassVar[str] = "fcfs"

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return keys that order by submission time."""
        return gangs.created


class Sjf:
    """Shortest job first: key = estimate."""

    name: ClassVar[str] = "sjf"

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return keys that order by expected run time."""
        return estimates(gangs)


class Saf:
    """Smallest area first: key = estimate · share, where share is the gang's dominant share of the cluster.

    Source: Carastan-Santos et al., One Can Only Gain by Replacing EASY Backfilling, CCGrid 2019.
    """

    name: ClassVar[str] = "saf"

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return keys that order by area: expected run time times dominant share."""
        return estimates(gangs) * gangs.share


class Wfp3:
    """WFP3: key = -(wait / estimate)³ · share, where share is the gang's dominant share of the cluster.

    A gang moves forward as its wait grows relative to its run time.

    Source: Tang et al., Fault-aware utility-based job scheduling on Blue Gene/P systems, CLUSTER 2009.
    """

    name: ClassVar[str] = "wfp3"

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return keys that order by relative wait, weighted by the dominant share."""
        return -(((now - gangs.created) / estimates(gangs)) ** 3) * gangs.share


class F1:
    """F1: key = log10(estimate) · size + 870 · log10(submission).

    Source: Carastan-Santos and de Camargo, Obtaining dynamic scheduling policies with simulation and machine
    learning, SC 2017.
    """

    name: ClassVar[str] = "f1"

    def key(self, gangs: GangColumns, now: float) -> FloatArray:
        """Return keys by the learned formula. Submission times are counted from 1 s."""
        submitted = np.log10(np.maximum(gangs.created, MIN_RUNTIME_SECONDS))
        return np.log10(estimates(gangs)) * gangs.size + 870.0 * submitted
