"""PodGroups of several origins with one name: the cluster state has the version of the one that counts."""

import pytest

from batchsched.api.crd.podgroup import PodGroup
from batchsched.podgrouper.pod_group_index import (
    DERIVED,
    EXTERNAL,
    FROM_USERS,
    OWNER_LABEL,
    WRITTEN,
    PodGroupIndex,
    PodGroupStore,
)
from batchsched.state.cluster_state import ClusterState

KEY = "team/bert"


@pytest.fixture
def cache() -> ClusterState:
    return ClusterState(["batchsched"])


def pod_group(uid: str, version: str = "", minimum: int = 1) -> PodGroup:
    metadata = {
        "name": "bert",
        "namespace": "team",
        "uid": uid,
        "resourceVersion": version,
    }
    return PodGroup.model_validate({"metadata": metadata, "spec": {"minMember": minimum}})


def shown(cache: ClusterState) -> tuple[str, int, int]:
    """The uid, the minimum and the version of the PodGroup that counts."""
    group = cache.get("pod_groups", KEY)
    return group.metadata.uid, group.effective_min_member, cache.resource_version("pod_groups", KEY)


def test_a_status_write_changes_the_version_only(cache: ClusterState):
    store = PodGroupStore(PodGroupIndex(cache))
    store.put(pod_group("of-user", "5"))
    generation = cache.generation
    store.put(pod_group("of-user", "6"))
    assert shown(cache) == ("of-user", 1, 6)
    assert cache.generation == generation


def test_derived_group_has_the_version_of_its_copy_in_the_api(cache: ClusterState):
    index = PodGroupIndex(cache)
    index.put_group_of_origin(DERIVED, pod_group("", minimum=2))
    assert shown(cache) == ("", 2, 0)
    index.put_group_of_origin(WRITTEN, pod_group("written", "7", minimum=2))
    assert shown(cache) == ("written", 2, 7)
    index.put_group_of_origin(DERIVED, pod_group("", minimum=3))
    assert shown(cache) == ("written", 3, 7)


def test_group_with_a_lower_version_counts_again_when_the_one_before_it_is_deleted(cache: ClusterState):
    index = PodGroupIndex(cache, external=1)
    index.put_group_of_origin(EXTERNAL, pod_group("external", "3", minimum=4))
    index.put_group_of_origin(FROM_USERS, pod_group("of-user", "9"))
    assert shown(cache) == ("of-user", 1, 9)
    index.remove_group_of_origin(FROM_USERS, KEY)
    assert shown(cache) == ("external", 4, 3)


def test_the_list_after_a_restore_of_the_api_server_may_have_lower_versions(cache: ClusterState):
    store = PodGroupStore(PodGroupIndex(cache))
    store.put(pod_group("of-user", "9", minimum=2))
    store.replace(PodGroup, [pod_group("of-user", "4", minimum=3)])
    assert shown(cache) == ("of-user", 3, 4)


def test_user_takes_over_a_written_group_by_removing_its_label(cache: ClusterState):
    index = PodGroupIndex(cache)
    store, label = PodGroupStore(index), {OWNER_LABEL: "job"}
    written = pod_group("written", "7")
    store.put(written.model_copy(update={"metadata": written.metadata.model_copy(update={"labels": label})}))
    index.put_group_of_origin(DERIVED, pod_group("", minimum=2))
    store.put(pod_group("written", "8"))
    assert shown(cache) == ("written", 1, 8)
