"""Exit codes, the same for every command."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command's exit code says; docs/reference/exit-codes.md has the cases."""

    OK = 0
    UNUSABLE = 1
    USAGE = 2
    SET_ASIDE = 3
    DIFFERS = 4
    DEFECT = 70
    INTERRUPTED = 130
