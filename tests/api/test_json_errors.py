"""Errors of the JSON decoder are reported in the words of field errors, without the notation of the decoder."""

import msgspec
import pytest

from batchsched.api.json_errors import MAX_MESSAGE_CHARACTERS, to_field_error


class Meta(msgspec.Struct):
    name: str
    labels: dict[str, str] | None = None
    owners: list[int] = []
    weight: float = 0.0
    paused: bool = False
    port: int | str = 0
    amount: int | float | str | None = None


class Head(msgspec.Struct):
    metadata: Meta


def error_of(raw, kind=Head):
    with pytest.raises((ValueError, RecursionError)) as caught:
        msgspec.json.decode(raw, type=kind)
    return caught.value


@pytest.mark.parametrize(
    "raw, text",
    [
        (b'{"name":7}', "metadata.name: expected text, found a whole number; put it in quotes"),
        (b'{"name":true}', "metadata.name: expected text, found true or false; put it in quotes"),
        (b'{"name":["a"]}', "metadata.name: expected text, found a list"),
        (b'{"name":null}', "metadata.name: expected text, found nothing"),
        (b'{"name":"a","labels":7}', "metadata.labels: expected a mapping, found a whole number"),
        (
            b'{"name":"a","labels":{"x":1.5}}',
            "metadata.labels[*]: expected text, found a decimal number; put it in quotes",
        ),
        (b'{"name":"a","owners":[1,{}]}', "metadata.owners[1]: expected a whole number, found a mapping"),
        (b'{"name":"a","owners":"b"}', "metadata.owners: expected a list, found text"),
        (b'{"name":"a","weight":"b"}', "metadata.weight: expected a number, found text"),
        (b'{"name":"a","paused":"b"}', "metadata.paused: expected true or false, found text"),
        (b'{"name":"a","port":[]}', "metadata.port: expected a whole number or text, found a list"),
        (b'{"name":"a","amount":true}', "metadata.amount: expected a number or text, found true or false"),
        (b"{}", "metadata.name: is required; add it"),
    ],
)
def test_message_names_the_field_what_was_expected_and_what_was_found(raw, text):
    assert str(to_field_error(error_of(b'{"metadata":' + raw + b"}"))) == text
    assert str(to_field_error(error_of(raw, Meta), "metadata")) == text


def test_error_of_a_key_names_its_mapping():
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({"labels": {1: "a"}, "name": "a"}, Meta)
    assert (
        str(to_field_error(caught.value)) == "labels: expected text, found a whole number; put it in quotes"
    )


def test_error_of_the_whole_json_has_no_field():
    assert str(to_field_error(error_of(b"7"))) == "expected a mapping, found a whole number"


def test_field_of_an_item_follows_its_list_without_a_dot():
    error = error_of(b"[1,[]]", list[int])
    assert str(to_field_error(error, "spec.ports")) == (
        "spec.ports[1]: expected a whole number, found a list"
    )


@pytest.mark.parametrize(
    "raw, message",
    [
        (b'{"metadata":x}', "is not JSON: invalid character (byte 12)"),
        (b"{", "is not JSON: input data was truncated"),
        (b'{"metadata":{"name":"\xff"}}', "contains bytes that are not UTF-8 text"),
        (b'{"unread":' + b"[" * 100_000, "is nested too deeply"),
    ],
    ids=["syntax", "truncated", "not UTF-8", "deep"],
)
def test_text_that_is_not_json_is_reported_as_such(raw, message):
    assert str(to_field_error(error_of(raw))) == message


def test_long_message_is_cut_off():
    error = msgspec.ValidationError(f"Invalid value {'x' * 10_000} - at `$.spec`")
    assert len(to_field_error(error).message) == MAX_MESSAGE_CHARACTERS
    assert to_field_error(error).field == "spec"


def test_text_of_another_exception_is_kept():
    assert str(to_field_error(ValueError("Exceeds the limit of digits"), "spec")) == (
        "spec: Exceeds the limit of digits"
    )


def test_message_that_is_unknown_is_kept():
    error = msgspec.ValidationError("Expected `int` >= 0 - at `$.spec.index`")
    assert str(to_field_error(error)) == "spec.index: expected int >= 0"
