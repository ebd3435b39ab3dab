"""The log: klog's lines for people, component-base's JSON for machines."""

import json
import logging
import sys

import pytest

from batchsched.observability.logs import (
    JsonLogFormat,
    TextLogFormat,
    log_info,
    log_warning,
    logging_level,
    set_up_logging,
)


@pytest.fixture
def logger():
    """A logger of the test's own; the root logger's handlers come back afterwards."""
    root = logging.getLogger()
    before, at = root.handlers[:], root.level
    yield logging.getLogger("batchsched.runner.profile_scheduler")
    root.handlers[:] = before
    root.setLevel(at)


def record(message="What happened", at=logging.INFO, error=None, **fields):
    made = logging.LogRecord("batchsched.runner.profile_scheduler", at, "planner.py", 7, message, (), error)
    made.created, made.fields = 1_795_262_400.25, fields
    return made


def test_text_line_has_the_format_of_klog():
    line = TextLogFormat().format(record(pod="team-a/x", placed=3))
    assert line == 'I1121 12:00:00.250000 runner.profile_scheduler] "What happened" pod="team-a/x" placed=3'


@pytest.mark.parametrize(
    "at, letter", [(logging.WARNING, "W"), (logging.ERROR, "E"), (logging_level(4), "I")]
)
def test_first_letter_is_the_severity(at, letter):
    assert TextLogFormat().format(record(at=at))[0] == letter


def test_traceback_follows_the_line():
    try:
        raise ValueError("broken")
    except ValueError:
        error = sys.exc_info()
    assert "ValueError: broken" in TextLogFormat().format(record(at=logging.ERROR, error=error))
    assert (
        "ValueError: broken"
        in json.loads(JsonLogFormat().format(record(at=logging.ERROR, error=error)))["err"]
    )


def test_object_of_a_line_has_the_fields_of_component_base():
    found = json.loads(JsonLogFormat().format(record(at=logging_level(2), pod="team-a/x")))
    assert found == {
        "ts": 1_795_262_400_250.0,
        "caller": "planner.py:7",
        "logger": "batchsched.runner.profile_scheduler",
        "msg": "What happened",
        "v": 2,
        "level": "INFO",
        "pod": "team-a/x",
    }


def test_error_has_err_instead_of_v():
    found = json.loads(JsonLogFormat().format(record(at=logging.ERROR)))
    assert "v" not in found
    assert found["err"] == ""


def test_text_with_line_breaks_is_escaped_on_one_line():
    for form in (TextLogFormat(), JsonLogFormat()):
        assert "\n" not in form.format(record("one\ntwo", reason="three\nfour"))


def test_more_verbosity_shows_more(capsys, logger):
    set_up_logging("json", 1)
    for verbosity in range(3):
        log_info(logger, verbosity, "said", message="a field may have any name")
    log_warning(logger, "warned")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(one["msg"], one["v"], one["level"]) for one in lines] == [
        ("said", 0, "INFO"),
        ("said", 1, "INFO"),
        ("warned", 0, "WARNING"),
    ]
    assert all(one["caller"].startswith("test_logs.py:") for one in lines)
