"""What the world said is said again, in its order, to the same questions."""

import asyncio

from typing_extensions import override

from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.ports.external import ExceededDeadline, ExtenderEndpoint, ExtenderReply, NoExtenders
from batchsched.record.external_answers import (
    NO_ANSWERS,
    NOT_RECORDED,
    ExternalAnswers,
    RecordingExtenderClient,
)
from batchsched.record.file import SessionRecord, read_session_file, write_session_file

HERE = ExtenderEndpoint("http://here")


class Counting(NoExtenders):
    def __init__(self):
        self.count = 0

    @override
    def send_request(self, endpoint, verb, question):
        self.count += 1
        return ExtenderReply(str(self.count))


def test_recorded_answers_are_returned_in_order_without_calls():
    first = RecordingExtenderClient(port=Counting())
    heard = [first.send_request(HERE, "filter", question).body for question in (b"a", b"b", b"a")]
    again = RecordingExtenderClient(first.calls)
    assert [again.send_request(HERE, "filter", question).body for question in (b"a", b"b", b"a")] == heard
    assert again.calls == first.calls


def test_another_request_verb_or_extender_has_no_recorded_answer():
    heard = RecordingExtenderClient(port=Counting())
    heard.send_request(HERE, "filter", b"a")
    for endpoint, verb, question in (
        (HERE, "filter", b"b"),
        (HERE, "bind", b"a"),
        (ExtenderEndpoint("http://there"), "filter", b"a"),
    ):
        assert RecordingExtenderClient(heard.calls).send_request(endpoint, verb, question) == ExtenderReply(
            fault=NOT_RECORDED
        )


def test_repeated_session_calls_extenders_only_for_new_requests():
    port = Counting()
    first = RecordingExtenderClient(port=port)
    first.send_request(HERE, "filter", b"a")
    second = RecordingExtenderClient(first.calls, port)
    assert [second.send_request(HERE, "filter", one).body for one in (b"a", b"b")] == ["1", "2"]
    assert port.count == 2


def test_bindings_are_no_part_of_a_decision():
    transcript = RecordingExtenderClient(port=Counting())
    assert asyncio.run(transcript.send_bind_request(HERE, "bind", b"")).fault
    assert asyncio.run(RecordingExtenderClient().send_bind_request(HERE, "bind", b"")).fault == NOT_RECORDED
    assert transcript.calls == ()


def test_answers_survive_their_file_and_files_without_any_are_read(tmp_path):
    heard = RecordingExtenderClient(port=Counting())
    heard.send_request(HERE, "filter", b"a")
    said = ExternalAnswers(heard.calls, (ExceededDeadline("slow", "Filter", 3, 1.5),))
    for answers in (said, NO_ANSWERS):
        write_session_file(
            tmp_path / "session", SessionRecord(Snapshot(), Profile(), 1.0, 0, Decision(), answers=answers)
        )
        assert read_session_file(tmp_path / "session").answers == answers
