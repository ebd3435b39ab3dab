"""The pods on nodes, counted: by labels, and in groups that state the same affinity."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.api.core.selector import LabelSelector
from batchsched.framework.nodes.label_index import PodSelector
from batchsched.framework.nodes.pod_table import HostPort, PodTable, any_port_conflict, host_ports
from tests.plugins import neighbours as nb
from tests.plugins.cluster import pod, with_ports

MOVES = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.integers(0, 3),
        st.sampled_from("ab"),
        st.booleans(),
        st.booleans(),
    ),
    max_size=40,
)


@given(MOVES)
def test_counts_follow_added_and_removed_pods(moves):
    table = PodTable(4)
    there: dict[str, tuple] = {}
    for number, at, app, terminating, social in moves:
        affinity = nb.required(apart=[nb.near(nb.HOST, app=app)]) if social else None
        one = nb.pod(f"p{number}", {"app": app}, terminating=terminating, affinity=affinity)
        if one.key in there:
            assert table.remove_pods([one.key]) == [there.pop(one.key)[1]]
        else:
            table.add_pods([(one, at)])
            there[one.key] = (one, at)
    for app in "ab":
        selection = PodSelector.from_label_selector(LabelSelector(match_labels={"app": app}))
        for leaving in (True, False):
            asked = Counter(
                at
                for one, at in there.values()
                if one.labels["app"] == app and (leaving or not one.terminating)
            )
            assert table.count_pods_matching_selector_by_node(selection, terminating=leaving).tolist() == [
                asked[at] for at in range(4)
            ]
    grouped = Counter(
        {
            (str(group.affinity), at): count
            for group in table.affinity_groups
            for at, count in group.on.items()
        }
    )
    assert grouped == Counter((str(one.spec.affinity), at) for one, at in there.values() if one.spec.affinity)
    assert {key: at for key, (_, at) in table.with_affinity.items()} == {
        key: at for key, (one, at) in there.items() if one.spec.affinity
    }
    assert {one.key: at for one, at in table.pods_with_node_indexes()} == {
        key: at for key, (_, at) in there.items()
    }


COMING = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.booleans()), min_size=1, max_size=12)


@given(st.booleans(), COMING, COMING, st.randoms(use_true_random=False))
def test_adding_and_removing_pods_together_equals_one_by_one(social, before, after, random):
    affinity = nb.required(apart=[nb.near(nb.HOST, app="a")]) if social else None
    pods = [
        (nb.pod(f"p{number}", {"app": app}, terminating=terminating, affinity=affinity), at)
        for number, (at, app, terminating) in enumerate(before + after)
    ]
    together, single = PodTable(4), PodTable(4)
    first, second = pods[: len(before)], pods[len(before) :]
    assert together.add_pods(first) + together.add_pods(second) == [
        key for one in pods for key in single.add_pods([one])
    ]
    assert _seen(together) == _seen(single)
    gone = random.choice([second, random.sample(pods, len(before)), pods])
    assert together.remove_pods([one.key for one, _ in gone]) == [
        at for one, _ in gone for at in single.remove_pods([one.key])
    ]
    assert _seen(together) == _seen(single)


def _seen(table: PodTable) -> list:
    chosen = [PodSelector.from_label_selector(LabelSelector(match_labels={"app": app})) for app in "ab"]
    return [
        *(table.count_pods_matching_selector_by_node(one, terminating=True).tolist() for one in chosen),
        *(table.count_pods_matching_selector_by_node(one, terminating=False).tolist() for one in chosen),
        [[one.key for one in table.pods_on(at)] for at in range(4)],
        [(one.key, at) for one, at in table.pods_with_node_indexes()],
        sorted(table.with_affinity),
        sorted((str(group.affinity), sorted(group.on.items())) for group in table.affinity_groups),
    ]


def test_equal_terms_of_many_pods_are_one_group():
    table = PodTable(2)
    for number in range(5):
        one = nb.pod(
            f"p{number}", {"id": str(number)}, affinity=nb.required(apart=[nb.near(nb.HOST, app="a")])
        )
        table.add_pods([(one, number % 2)])
    (group,) = table.affinity_groups
    nodes, counts = group.nodes_and_pod_counts()
    assert dict(zip(nodes.tolist(), counts.tolist(), strict=True)) == {0: 3, 1: 2}


def test_an_unknown_pod_cannot_be_removed():
    with pytest.raises(KeyError):
        PodTable(1).remove_pods([nb.pod("missing").key])


def test_groups_without_pods_are_dropped_and_counts_stay_correct():
    table = PodTable(2)
    table.add_pods([(nb.pod("stays", {"app": "a"}), 1)])
    for number in range(2000):
        passing = nb.pod(f"p{number}", {"app": "a", "id": str(number)}, terminating=number % 2 == 0)
        table.add_pods([(passing, 0)])
        table.remove_pods([passing.key])
    assert len(table._groups) < 600
    again = nb.pod("again", {"app": "a", "id": "1"})
    table.add_pods([(again, 0), (nb.pod("other", {"app": "b"}), 0)])
    selection = PodSelector.from_label_selector(LabelSelector(match_labels={"app": "a"}))
    assert table.count_pods_matching_selector_by_node(selection).tolist() == [1, 1]
    assert table.count_pods_matching_selector_by_node(selection, terminating=False).tolist() == [1, 1]


@pytest.mark.parametrize("together", [False, True])
def test_a_removed_pod_holds_no_disk_no_attachment_and_no_claim(together):
    disk = {"name": "d", "gcePersistentDisk": {"pdName": "d"}}
    data = {"name": "c", "persistentVolumeClaim": {"claimName": "c"}}
    mounting = [nb.pod(name, volumes=[disk, data]) for name in ("first", "second")]
    table = PodTable(1)
    for one in mounting:
        table.add_pods([(one, 0)])
    for held in (table.disks_on[0], table.attaching_on[0], table.claim_users["default/c"]):
        assert set(held) == {"default/first", "default/second"}
    if together:
        table.remove_pods([one.key for one in mounting])
    else:
        for one in mounting:
            table.remove_pods([one.key])
    assert not any((table.disks_on[0], table.attaching_on[0], table.claim_users["default/c"]))


WEB = HostPort("0.0.0.0", "TCP", 80)


def test_address_and_protocol_have_defaults():
    assert host_ports(with_ports("x", {"hostPort": 80})) == (WEB,)
    assert host_ports(with_ports("x", {})) == ()
    assert host_ports(pod()) == ()


def test_init_containers_hold_ports_only_as_sidecars():
    ports = [{"containerPort": 80, "hostPort": 80}]
    sidecar = {"name": "s", "restartPolicy": "Always", "ports": ports}
    assert host_ports(pod(initContainers=[sidecar])) == (WEB,)
    assert host_ports(pod(initContainers=[{"name": "i", "ports": ports}])) == ()


def test_host_ports_conflict_by_number_protocol_and_address():
    here, there = WEB._replace(address="10.0.0.1"), WEB._replace(address="10.0.0.2")
    assert WEB.conflicts_with(here)
    assert here.conflicts_with(WEB)
    assert here.conflicts_with(here)
    assert not here.conflicts_with(there)
    assert not WEB.conflicts_with(WEB._replace(protocol="UDP"))
    assert not WEB.conflicts_with(WEB._replace(number=81))
    assert any_port_conflict((there, WEB), (here,))
    assert not any_port_conflict((there,), (here,))
    assert not any_port_conflict((WEB,), ())
