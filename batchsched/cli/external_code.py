"""Error messages for exceptions in policies and plugins of other packages, with their name, file and line."""

import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_GROUPS: Final = {
    "batchsched.policies": "policy",
    "batchsched.queue_policies": "policy",
    "batchsched.plugins": "plugin",
}
"""Entry point groups of code that other packages register, and what a message calls it."""
_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass(frozen=True, slots=True)
class _RegisteredCode:
    """A registered policy or plugin of another package.

    Args:
      kind: `policy` or `plugin`.
      name: the registered name.
      file: the file of its module.
    """

    kind: str
    name: str
    file: Path


def external_failure_message(error: BaseException) -> str | None:
    """Return an error message if a policy or plugin that is not part of batchsched raised the exception.

    Return None for all other exceptions.

    Errors of worker processes contain their tracebacks as text only, so that the text is searched.
    """
    frames = _FRAME.findall("".join(traceback.format_exception(error)))
    codes = list(_registered_code())
    for file, line in reversed(frames):
        for code in codes:
            if Path(file) == code.file:
                problem = f"{type(error).__name__}: {error}"
                return f"{code.kind} {code.name} failed in {file}, line {line}: {problem}"
    return None


def _registered_code() -> Iterator[_RegisteredCode]:
    """Yield the registered policies and plugins that do not belong to batchsched."""
    for group, kind in _GROUPS.items():
        for point in entry_points(group=group):
            if point.module.partition(".")[0] == "batchsched":
                continue
            try:
                spec = find_spec(point.module)
            except (ImportError, ValueError):  # its package is broken or removed
                continue
            if spec is not None and spec.origin is not None:
                yield _RegisteredCode(kind, point.name, Path(spec.origin))
