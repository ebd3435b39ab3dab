"""What the world said is said again, in its order, to the same questions."""

import asyncio

from typing_extensions import override

from batchsched.api.decision import Decision
from batchsched.api.snapshot import Snapshot
from batchsched.config.schema import Profile
from batchsched.ports.external import Endpoint, ExceededDeadline, NoExtenders, Reply
from batchsched.record.answers import NO_ANSWERS, NOT_RECORDED, Answers, Transcript
from batchsched.record.file import Record, read, write

HERE = Endpoint("http://here")


class Counting(NoExtenders):
    def __init__(self):
        self.count = 0

    @override
    def ask(self, endpoint, verb, question):
        self.count += 1
        return Reply(str(self.count))


def test_recorded_answers_are_returned_in_order_without_calls():
    first = Transcript(port=Counting())
    heard = [first.ask(HERE, "filter", question).body for question in (b"a", b"b", b"a")]
    again = Transcript(first.calls)
    assert [again.ask(HERE, "filter", question).body for question in (b"a", b"b", b"a")] == heard
    assert again.calls == first.calls


def test_another_request_verb_or_extender_has_no_recorded_answer():
    heard = Transcript(port=Counting())
    heard.ask(HERE, "filter", b"a")
    for endpoint, verb, question in (
        (HERE, "filter", b"b"),
        (HERE, "bind", b"a"),
        (Endpoint("http://there"), "filter", b"a"),
    ):
        assert Transcript(heard.calls).ask(endpoint, verb, question) == Reply(fault=NOT_RECORDED)


def test_repeated_session_calls_extenders_only_for_new_requests():
    port = Counting()
    first = Transcript(port=port)
    first.ask(HERE, "filter", b"a")
    second = Transcript(first.calls, port)
    assert [second.ask(HERE, "filter", one).body for one in (b"a", b"b")] == ["1", "2"]
    assert port.count == 2


def test_bindings_are_no_part_of_a_decision():
    transcript = Transcript(port=Counting())
    assert asyncio.run(transcript.put(HERE, "bind", b"")).fault
    assert asyncio.run(Transcript().put(HERE, "bind", b"")).fault == NOT_RECORDED
    assert transcript.calls == ()


def test_answers_survive_their_file_and_files_without_any_are_read(tmp_path):
    heard = Transcript(port=Counting())
    heard.ask(HERE, "filter", b"a")
    said = Answers(heard.calls, (ExceededDeadline("slow", "Filter", 3, 1.5),))
    for answers in (said, NO_ANSWERS):
        write(tmp_path / "session", Record(Snapshot(), Profile(), 1.0, 0, Decision(), answers=answers))
        assert read(tmp_path / "session").answers == answers
