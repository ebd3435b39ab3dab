"""Formats at their edges; whole files are tested in test_reader."""

import msgspec
import pytest

from batchsched.errors import InvalidInput
from batchsched.manifests.documents import Document, split_documents

NODE = b'{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}'


def found(data, file="x.json"):
    """Return the kinds of what is found, and the messages of what is wrong."""
    return [
        one.message if isinstance(one, InvalidInput) else one.envelope.kind
        for one in split_documents(data, file)
    ]


def test_byte_order_mark_is_passed_over():
    assert found(b"\xef\xbb\xbf" + NODE) == ["Node"]


def test_several_texts_are_read_up_to_the_broken_one():
    text = b'{\n"apiVersion": "v1",\n"kind": "Node"\n}\n'
    *good, last = found(text + text + b"{")
    assert good == ["Node", "Node"]
    assert last.startswith("line 9, column 2: is not JSON")


def test_broken_json_is_named_by_line_and_column():
    (message,) = found(b'{\n "kind": "Node",\n "metadata": {]\n}')
    assert message.startswith("line 3, column 15: is not JSON")


@pytest.mark.parametrize("file", ["x.json", "x.yaml"])
def test_json_that_is_not_utf8_is_named_by_its_byte(file):
    (message,) = found(b'{"kind": "\xff', file)
    assert "is not UTF-8 text (byte 10)" in message


def test_only_an_item_that_is_not_an_object_is_set_aside():
    data = b'{"apiVersion": "v1", "kind": "List", "items": [7, ' + NODE + b', {"kind": 7}]}'
    first, second, third = found(data)
    assert "expected a Kubernetes object" in first
    assert second == "Node"
    assert first.endswith("found '7'")
    assert "expected text, found a whole number" in third


def test_object_with_a_kind_that_is_not_text_is_named_by_its_position_and_field():
    (one,) = split_documents(b'{"kind": 7}', "x.json")
    assert isinstance(one, InvalidInput)
    assert (one.object, one.field) == ("(document 1)", "kind")
    assert one.message == "expected text, found a whole number; put it in quotes"


@pytest.mark.parametrize(
    "namespace, name, title",
    [
        ("team", "train-0", "Pod team/train-0"),
        ("", "n" * 253, f"Pod default/{'n' * 253}"),
        ("te am", "a/b", "Pod 'te am'/'a/b'"),
        ("team", "a\nset aside: b", r"Pod team/'a\nset aside: b'"),
        ("team", "a\x1b[31m", r"Pod team/'a\x1b[31m'"),
        ("team", "a\u202eb", r"Pod team/'a\u202eb'"),
        ("team", "x" * 1000, f"Pod team/'{'x' * 60}...'"),
        (7, "a", "Pod '7'/a"),
    ],
    ids=["plain", "longest", "blank", "line break", "escape", "direction", "too long", "number"],
)
def test_title_of_an_object_quotes_what_cannot_be_a_name(namespace, name, title):
    metadata = {"namespace": namespace, "name": name}
    manifest = msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
    (document,) = split_documents(manifest, "x.json")
    assert isinstance(document, Document)
    assert document.kind_and_name(namespaced=True) == title


@pytest.mark.parametrize("text", [b"d: {[1, 2]: x}", b"d: !!python/object:os.system {}", b"d: *nowhere"])
def test_yaml_with_tags_complex_keys_or_unknown_aliases_is_refused(text):
    (message,) = found(text, "x.yaml")
    assert message.startswith("line 1: is not YAML")


def test_empty_list_is_distinguished_from_no_input():
    assert found(b'{"apiVersion": "v1", "kind": "PodList", "items": null}') == ["List"]
    assert found(b"") == []
    assert found(b"[]") == []
