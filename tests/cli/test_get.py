"""`batchsched get` with the habits of a kubectl user, against a server with configured answers."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from batchsched.api.core.metadata import format_timestamp
from batchsched.cli.get import POD_GROUPS, QUEUES, table_rows
from tests.extender_server import http_server

GROUPS = "/apis/scheduling.batchsched.dev/v1alpha1"
BERT = {"metadata": {"name": "bert", "namespace": "team"}, "spec": {"minMember": 2}}


@dataclass
class Api:
    """Answers by path; `plain`: it has never heard of our kinds, and what it answers then is no JSON."""

    url: str = ""
    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    watches: list[list[Any]] = field(default_factory=list)
    plain: bool = False

    def answer(self, address: str, _: bytes) -> tuple[int, bytes]:
        self.asked.append(address)
        path = urlsplit(address).path
        if "watch=1" in address:
            return 200, b"".join(json.dumps(event).encode() + b"\n" for event in self.watches.pop(0))
        missing = {"kind": "Status", "reason": "NotFound", "message": f"{path} not found", "code": 404}
        body = b"404 page not found\n" if self.plain else json.dumps(self.answers.get(path, missing)).encode()
        return 200 if path in self.answers else 404, body


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()
    with http_server(made.answer) as made.url:
        yield made


@pytest.fixture
def get(api, command, tmp_path: Path):
    config = tmp_path / "kubeconfig"
    user = {"name": "u", "user": {"token": "t"}}
    cluster = {"name": "c", "cluster": {"server": api.url}}
    contexts = [
        {"name": name, "context": {"cluster": "c", "user": "u", **more}}
        for name, more in (("here", {"namespace": "team"}), ("plain", {}))
    ]
    stated = {"clusters": [cluster], "users": [user], "contexts": contexts, "current-context": "here"}
    config.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config"} | stated))
    return lambda *arguments: command("get", *arguments, "--kubeconfig", config)


def listed(*items: Any) -> Any:
    return {"kind": "PodGroupList", "apiVersion": "scheduling.batchsched.dev/v1alpha1", "items": list(items)}


def test_gangs_of_the_contexts_namespace_are_listed(api, get):
    api.answers[f"{GROUPS}/namespaces/team/podgroups"] = listed(BERT)
    for name in ("podgroups", "podgroup", "pg", "PodGroups"):
        result = get(name)
        assert result.code == 0
        assert result.out.splitlines()[0].split() == [
            "NAME",
            "PHASE",
            "MIN",
            "PLACED",
            "RUNNING",
            "QUEUE",
            "AGE",
        ]
        assert result.out.splitlines()[1].startswith("bert   <unknown>   2 ")


def test_one_namespace_or_all_namespaces_may_be_selected(api, get):
    api.answers[f"{GROUPS}/namespaces/other/podgroups"] = listed()
    api.answers[f"{GROUPS}/namespaces/default/podgroups"] = listed()
    api.answers[f"{GROUPS}/podgroups"] = listed(BERT)
    assert get("pg", "-n", "other").err == "No podgroups found in other namespace.\n"
    assert get("pg", "--context", "plain").err == "No podgroups found in default namespace.\n"
    assert get("pg", "-A").out.splitlines()[1].split()[:2] == ["team", "bert"]


def test_one_or_several_may_be_named(api, get):
    api.answers[f"{GROUPS}/namespaces/team/podgroups/bert"] = BERT | {"kind": "PodGroup"}
    assert len(get("pg", "bert").out.splitlines()) == 2
    assert get("pg", "bert", "-o", "json").data["kind"] == "PodGroup"
    assert [one["metadata"]["name"] for one in get("pg", "bert", "bert", "-o", "json").data["items"]] == [
        "bert"
    ] * 2


def test_missing_name_is_an_error(get):
    result = get("pg", "absent")
    assert result.code == 2
    assert (
        "there is no PodGroup 'absent' in namespace 'team'; `batchsched get podgroups` lists them"
        in result.err
    )
    assert not result.out


@pytest.mark.parametrize("name", [(), ("bert",)], ids=["all", "one"])
def test_cluster_without_the_custom_resources_is_reported_with_a_remedy(api, get, name):
    api.plain = True
    result = get("pg", *name)
    assert result.code == 1
    assert "does not know podgroups of batchsched; `batchsched install`" in result.err


def test_structured_output_is_that_of_the_server(api, get):
    api.answers[f"{GROUPS}/namespaces/team/podgroups"] = listed(BERT)
    assert get("pg", "-o", "json").data["items"] == [BERT]
    assert yaml.safe_load(get("pg", "-o", "yaml").out)["items"] == [BERT]


def test_queues_have_no_namespace(api, get):
    queue = {"metadata": {"name": "ml"}, "spec": {"parent": "research"}}
    api.answers[f"{GROUPS}/queues"] = listed(queue) | {"kind": "QueueList"}
    for more in ((), ("-n", "other"), ("-A",)):
        assert get("bq", *more).out.splitlines()[1].split()[:2] == ["ml", "research"]


def test_label_selector_is_sent_to_the_server(api, get):
    api.answers[f"{GROUPS}/namespaces/team/podgroups"] = listed()
    get("pg", "-l", "app=bert")
    assert api.asked[-1].endswith("?labelSelector=app%3Dbert")


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (("pods",), "no kind 'pods'"),
        (("pg", "bert", "-A"), "names select objects of one namespace"),
        (("pg", "bert", "-l", "a=b"), "remove one of them"),
    ],
    ids=["kind", "everywhere", "selector"],
)
def test_arguments_that_contradict_each_other_are_refused(get, arguments, complaint):
    result = get(*arguments)
    assert result.code == 2
    assert complaint in result.complaint


NOW = 1_700_000_000.0
WAITING = {
    "metadata": {"name": "bert", "namespace": "team", "creationTimestamp": format_timestamp(NOW - 300)},
    "spec": {"minMember": 9, "queue": "ml", "subGroups": [{"name": "a"}, {"name": "b", "minMember": 8}]},
    "status": {
        "phase": "Pending",
        "placed": 3,
        "queuePosition": 2,
        "estimatedStartTime": format_timestamp(NOW + 90),
        "conditions": [
            {"type": "Other", "reason": "x"},
            {"type": "Scheduled", "status": "False", "reason": "QueueLimit", "message": "2 over"},
        ],
    },
}


def cells(kind, one, wide=False, namespaces=False):
    titles, row = table_rows(kind, [one], NOW, wide=wide, namespaces=namespaces)
    return dict(zip(titles, row, strict=True))


def test_pending_gang_is_a_row():
    assert cells(POD_GROUPS, WAITING) == {
        "NAME": "bert",
        "PHASE": "Pending",
        "MIN": "9",
        "PLACED": "3",
        "RUNNING": "0",
        "QUEUE": "ml",
        "AGE": "5m",
    }


def test_wide_output_has_position_start_and_reason():
    found = cells(POD_GROUPS, WAITING, wide=True, namespaces=True)
    assert found["NAMESPACE"] == "team"
    assert (found["POSITION"], found["START"]) == ("2", "in 90s")
    assert found["SCHEDULED"] == "QueueLimit: 2 over"


def test_gang_without_status_and_spec_has_defaults_and_unknown_cells():
    found = cells(POD_GROUPS, {"metadata": {"name": "x"}}, wide=True)
    assert found["PHASE"] == found["SCHEDULED"] == found["AGE"] == found["QUEUE"] == "<unknown>"
    assert (found["MIN"], found["START"]) == ("1", "<none>")


def test_queue_of_a_gang_that_names_none_is_that_of_its_status():
    content = {"metadata": {"name": "x"}, "spec": {}, "status": {"queue": "ml"}}
    assert cells(POD_GROUPS, content)["QUEUE"] == "ml"


def test_least_number_is_what_the_subgroups_need_where_it_is_not_stated():
    assert (
        cells(POD_GROUPS, {"metadata": {"name": "x"}, "spec": {"subGroups": [{}, {"minMember": 3}]}})["MIN"]
        == "4"
    )


def test_queue_is_a_row_with_its_allocated_amounts():
    one = {
        "metadata": {"name": "ml"},
        "spec": {"parent": "research", "limit": {"cpu": "8"}},
        "status": {"allocated": {"memory": "1Gi", "cpu": "2"}, "pending": 1},
    }
    found = cells(QUEUES, one, wide=True)
    assert (found["PARENT"], found["WEIGHT"], found["PENDING"]) == ("research", "1", "1")
    assert (found["ALLOCATED"], found["LIMIT"], found["GUARANTEE"]) == ("cpu=2,memory=1Gi", "cpu=8", "<none>")


def test_queue_shows_the_selector_of_its_namespaces():
    one = {"metadata": {"name": "ml"}, "spec": {"namespaceSelector": {"matchLabels": {"team": "ml"}}}}
    assert cells(QUEUES, one, wide=True)["NAMESPACES"] == "team=ml"
    assert cells(QUEUES, {"metadata": {"name": "web"}}, wide=True)["NAMESPACES"] == "<none>"


def test_one_object_may_be_named_by_kind_and_name(api, get):
    api.answers[f"{GROUPS}/namespaces/team/podgroups/bert"] = BERT | {"kind": "PodGroup"}
    assert get("podgroup/bert").out == get("podgroup", "bert").out
    assert get("podgroup/team/bert", "-n", "team").out == get("podgroup", "bert").out
    assert get("pg/bert", "other").code == get("pg/").code == get("pg/a/b/c").code == 2


def test_namespace_in_a_name_replaces_that_of_the_context(api, get):
    api.answers[f"{GROUPS}/namespaces/other/podgroups/bert"] = BERT | {"kind": "PodGroup"}
    assert get("podgroup/other/bert").code == 0
    assert (
        "in the namespace other; remove --namespace team"
        in get("podgroup/other/bert", "-n", "team").complaint
    )
    assert "queues have no namespace; expected queue/ml" in get("queue/other/ml").complaint


def test_names_are_printed_as_kubectl_prints_them(api, get):
    api.answers[f"{GROUPS}/namespaces/team/podgroups"] = listed(BERT)
    assert get("pg", "-o", "name").out == "podgroup.scheduling.batchsched.dev/bert\n"
    assert get("pg", "--no-headers").out.split()[0] == "bert"
    assert get("pg", "-o", "jsonpath={.items[*].metadata.name}").out == "bert\n"


def test_watch_prints_each_change_as_a_further_line(api, get):
    path = f"{GROUPS}/namespaces/team/podgroups"
    api.answers[path] = listed(BERT) | {"metadata": {"resourceVersion": "7"}}
    metadata = {"name": "bert", "namespace": "team", "resourceVersion": "8"}
    running = {"metadata": metadata, "status": {"phase": "Running"}}
    gone = {"code": 410, "reason": "Expired", "message": "too old resource version"}
    api.watches = [
        [
            {"type": "MODIFIED", "object": running},
            {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}},
        ],
        [{"type": "ERROR", "object": gone}],
    ]
    result = get("pg", "-w")
    assert [line.split()[:2] for line in result.out.splitlines()] == [
        ["NAME", "PHASE"],
        ["bert", "<unknown>"],
        ["bert", "Running"],
    ]
    assert (result.code, "410 Expired" in result.err) == (5, True)
    assert ["resourceVersion=7" in api.asked[1], "resourceVersion=9" in api.asked[2]] == [True, True]


def test_watch_follows_one_object_or_all(get):
    result = get("pg", "bert", "llama", "-w")
    assert (result.code, "--watch: expected at most one name" in result.err) == (2, True)
