"""Answers are read the same however their bytes are cut up, and nonsense is no answer."""

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchsched.kube.answer import Answer, Reading

PLAIN = b'HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{"a":1}'
CHUNKED = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n3;x=y\r\n:1}\r\n0\r\nTrailer: t\r\n\r\n'
ANNOUNCED = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + PLAIN
EMPTY = b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"
BUSY = b"HTTP/1.1 429 Too Many Requests\r\nRETRY-AFTER: 7\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n"
BODY = b'{"a":1}'
KNOWN = {
    PLAIN: Answer(201, "Created", "", BODY, lasting=True),
    CHUNKED: Answer(200, "OK", "", BODY, lasting=True),
    ANNOUNCED: Answer(201, "Created", "", BODY, lasting=True),
    EMPTY: Answer(204, "No Content", "", b"", lasting=True),
    BUSY: Answer(429, "Too Many Requests", "7", b"", lasting=False),
}


@given(st.sampled_from(list(KNOWN)), st.lists(st.integers(0, 200)))
def test_an_answer_is_the_same_however_it_is_cut_up(raw, cuts):
    places = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    reading, found = Reading(), None
    for begin, end in pairwise(places):
        assert found is None
        found = reading.feed(raw[begin:end])
    assert found == KNOWN[raw]


@pytest.mark.parametrize("raw", list(KNOWN), ids=["plain", "chunked", "announced", "empty", "busy"])
def test_what_is_not_whole_is_no_answer(raw):
    reading = Reading()
    assert reading.feed(raw[:-1]) is None
    assert reading.begun
    assert reading.end() is None


def test_a_body_of_unknown_length_ends_with_the_connection():
    reading = Reading()
    assert reading.feed(b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>") is None
    assert reading.feed(b"</html>") is None
    assert reading.end() == Answer(502, "Bad Gateway", "", b"<html></html>", lasting=False)


def test_a_connection_on_which_more_came_than_was_asked_for_is_not_used_again():
    found = Reading().feed(PLAIN + b"HTTP/1.1 200 OK")
    assert found is not None
    assert not found.lasting


@pytest.mark.parametrize(
    "version, said, lasting",
    [("1.1", "", True), ("1.1", "close", False), ("1.0", "", False), ("1.0", "keep-alive", True)],
    ids=["new", "new-close", "old", "old-keep-alive"],
)
def test_a_connection_lasts_as_its_version_and_its_server_say(version, said, lasting):
    headers = f"Connection: {said}\r\n" if said else ""
    found = Reading().feed(f"HTTP/{version} 200 OK\r\n{headers}Content-Length: 0\r\n\r\n".encode())
    assert found is not None
    assert found.lasting is lasting


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnothing\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    ],
    ids=["other", "code", "length", "negative", "chunk", "overlong", "endless"],
)
def test_what_is_no_http_is_a_broken_connection(raw):
    with pytest.raises(ConnectionError, match="does not speak"):
        Reading().feed(raw)


@given(st.binary(max_size=300))
def test_nonsense_is_refused_or_waited_for_and_breaks_nothing(raw):
    with suppress(ConnectionError):
        assert Reading().feed(raw) is None
