"""Keeps the last CP-SAT model on disk: an abort inside CP-SAT ends the process, and leaves no trace of the model."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ortools.sat.python import cp_model_helper as cp_sat


@pytest.fixture(scope="module", autouse=True)
def last_model_on_disk() -> Iterator[Path]:
    """Write each model with its parameters before it is solved; the file remains only if the process is aborted.

    `cp_sat.CpModelProto().parse_text_format` reads the model from the text below the first blank line.
    """
    path = Path(tempfile.gettempdir(), f"batchsched-last-cpsat-model-{os.getpid()}.txt")
    original = cp_sat.SolveWrapper

    class WritingSolver:
        def __init__(self) -> None:
            self._solver, self._parameters = original(), ""

        def set_parameters(self, parameters: cp_sat.SatParameters) -> None:
            self._parameters = str(parameters).strip()
            self._solver.set_parameters(parameters)

        def solve(self, model: cp_sat.CpModelProto) -> cp_sat.CpSolverResponse:
            path.write_text(f"{self._parameters}\n\n{model}", encoding="ascii")
            response: cp_sat.CpSolverResponse = self._solver.solve(model)
            return response

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cp_sat, "SolveWrapper", WritingSolver)
        yield path
    path.unlink(missing_ok=True)
