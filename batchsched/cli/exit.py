"""Exit codes of all commands."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit code of a command; docs/reference/exit-codes.md describes the cases."""

    OK = 0
    UNUSABLE = 1
    USAGE = 2
    SET_ASIDE = 3
    DIFFERS = 4
    DEFECT = 70
    INTERRUPTED = 130
