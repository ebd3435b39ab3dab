"""Structured logging in the two formats of Kubernetes components: text and JSON.

Verbosity levels are those of Kubernetes: 0 is always shown, and higher levels need `-v`.

Source: the text and JSON formats of component-base's logs, `--logging-format` and `-v`.
"""

import datetime as dt
import json
import logging
import sys
from typing import Any, Final, Literal

from typing_extensions import override

Format = Literal["text", "json"]
_FIELDS: Final = "fields"
_LETTERS: Final = {logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}


def log_info(logger: logging.Logger, verbosity: int, message: str, /, **fields: Any) -> None:
    """Log an informational message with structured fields.

    Args:
      logger: The logger of the module.
      verbosity: The lowest `-v` at which the message is shown.
      message: What happened; a constant text without values.
      fields: The values that belong to the event.
    """
    logger.log(logging_level(verbosity), message, extra={_FIELDS: fields}, stacklevel=2)


def log_warning(logger: logging.Logger, message: str, /, **fields: Any) -> None:
    """Log a warning with structured fields, about a problem from which the scheduler may recover by itself."""
    logger.warning(message, extra={_FIELDS: fields}, stacklevel=2)


def logging_level(verbosity: int) -> int:
    """Return the level of Python's `logging` module for a verbosity of Kubernetes (`-v`)."""
    return max(1, logging.INFO - verbosity)


def set_up_logging(form: Format, verbosity: int) -> None:
    """Configure logging: write messages up to a verbosity to standard error, as text or JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLogFormat() if form == "json" else TextLogFormat())
    logging.getLogger().handlers[:] = [handler]
    set_verbosity(verbosity)


def set_verbosity(verbosity: int) -> None:
    """Change the verbosity (`-v`) up to which messages are logged."""
    logging.getLogger().setLevel(logging_level(verbosity))


class TextLogFormat(logging.Formatter):
    """The log format of klog: `I1121 12:00:00.000000 scheduler.loop] "What happened" pod="team-a/x"`."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        letter = _LETTERS.get(record.levelno, "I")
        moment = dt.datetime.fromtimestamp(record.created, dt.UTC).strftime("%m%d %H:%M:%S.%f")
        fields = "".join(f" {name}={_text(value)}" for name, value in getattr(record, _FIELDS, {}).items())
        line = f"{letter}{moment} {record.name.removeprefix('batchsched.')}] {json.dumps(record.getMessage())}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLogFormat(logging.Formatter):
    """A log format with one JSON object for each message, and with the same keys as Kubernetes components.

    The keys are ts (milliseconds since 1970), caller, logger, msg, v or err, and the structured fields.
    """

    @override
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": round(record.created * 1000, 3),
            "caller": f"{record.filename}:{record.lineno}",
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.levelno >= logging.ERROR:
            line["err"] = self.formatException(record.exc_info) if record.exc_info else ""
        else:
            line["v"] = max(0, logging.INFO - record.levelno)
            line["level"] = record.levelname if record.levelno >= logging.WARNING else "INFO"
        line.update(getattr(record, _FIELDS, {}))
        return json.dumps(line, ensure_ascii=False, default=str)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
