"""The listener that hears nothing."""

import pytest

from batchsched.ports.telemetry import Silence


def test_silence_changes_nothing_and_lets_errors_through():
    silence = Silence()
    with silence.stage("solve"):
        silence.progress(1, 2, "gangs")
    with pytest.raises(KeyError), silence.stage("solve"):
        raise KeyError("x")
