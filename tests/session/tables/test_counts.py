"""Counts of gangs: made when they are asked for, kept while the session moves them, and free of circles."""

import gc
import weakref

from batchsched.api.core.metadata import ObjectMeta
from batchsched.api.core.pod import Pod, PodSpec
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.framework.runtime.registry import standard
from batchsched.session.tables.gang import PlacedPodCounts, PodGroupState
from batchsched.session.tables.session_tables import SessionTables

POD = Pod(metadata=ObjectMeta(name="one", namespace="team"), spec=PodSpec())


def alone():
    return PlacedPodCounts({"pod/team/one": PodGroupState("pod/team/one", None, {POD.key: POD})})


def test_a_count_is_moved_until_its_gang_changes():
    counts = alone()
    counts.of(POD).count(POD, 1)
    assert counts.of(POD).placed == 1
    counts.forget("pod/team/one")
    assert counts.of(POD).placed == 0


def test_what_stands_for_pods_of_several_gangs_has_no_count():
    assert alone().of_gang(Pod(metadata=ObjectMeta(namespace="team"), spec=PodSpec())) is None


def test_a_frame_is_gone_as_soon_as_nobody_holds_it():
    gc.disable()
    try:
        tables = SessionTables(Snapshot(pods=(POD,)), standard().pipeline(Profile()))
        tables.refresh()
        record = weakref.ref(tables.counts)
        del tables
        assert record() is None
    finally:
        gc.enable()
