"""Session files: the input of a session, its decision, and a digest that reveals modifications.

The file is gzipped JSON: `{"digest": "sha256:…", "session": {…}}`. The digest is over the session as JSON with
sorted keys and without spaces, so that the layout of the file does not matter. It protects against damage and careless
edits; it is not a signature. `compare_decisions` compares a recorded decision with that of a replay.
"""

import gzip
import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
from pydantic import ValidationError

from batchsched import __version__
from batchsched.api.crd.validation import field_errors
from batchsched.api.decision import Decision, Reservation, SetAside, without_measured_durations
from batchsched.api.decision import to_json as decision_json
from batchsched.api.json_errors import to_field_error
from batchsched.api.pod_devices import ReservedPodDevices
from batchsched.api.snapshot import HeldGang, PastQueueUsage, Snapshot
from batchsched.config.schema import Profile
from batchsched.errors import DigestMismatch, InvalidInput
from batchsched.manifests.reader import decompress
from batchsched.manifests.writer import decode_snapshot_from_json, encode_snapshot_as_json
from batchsched.record.external_answers import NO_ANSWERS, ExternalAnswers

FORMAT: Final = "batchsched.session/1"
SESSION_START: Final = b'{"digest":"'
"""The first bytes of every session file, after decompression."""
_GZIP_LEVEL: Final = 6
"""The compression level of gzip: a third of the time of the default for a few per cent more bytes."""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A recorded session: its input, its decision, and the answers of extenders.

    Args:
      now: The time of the session, seconds since 1970.
      version: The version of batchsched that decided the session.
      answers: The responses of extenders and the exceeded plugin deadlines.
    """

    snapshot: Snapshot
    profile: Profile
    now: float
    seed: int
    decision: Decision
    version: str = __version__
    answers: ExternalAnswers = NO_ANSWERS


class _Session(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    format: str
    batchsched: str
    now: float
    seed: int
    profile: dict[str, Any]
    manifests: msgspec.Raw
    held: tuple[HeldGang, ...]
    set_aside: tuple[SetAside, ...]
    decision: Decision
    answers: ExternalAnswers = NO_ANSWERS
    resting: tuple[str, ...] = ()
    usage: tuple[PastQueueUsage, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    refused_evictions: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """Left out if there are none: the bytes of such a session are those of earlier versions."""
    chosen_policy: str | msgspec.UnsetType = msgspec.UNSET
    """Left out under every policy but `auto`, for the same reason."""
    pod_devices: tuple[ReservedPodDevices, ...] | msgspec.UnsetType = msgspec.UNSET
    """Left out if there are none, for the same reason."""
    rejected: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """Left out if there are none, for the same reason."""


class _Sealed(msgspec.Struct, frozen=True):
    digest: str
    session: msgspec.Raw


class _Format(msgspec.Struct, frozen=True):
    format: str = ""


def encode_session_file(record: SessionRecord) -> tuple[bytes, str]:
    """Return the content of a session file, and its digest; equal sessions give equal bytes."""
    session = _Session(
        format=FORMAT,
        batchsched=record.version,
        now=record.now,
        seed=record.seed,
        profile=record.profile.model_dump(mode="json", by_alias=True),
        manifests=msgspec.Raw(encode_snapshot_as_json(record.snapshot).strip()),
        held=record.snapshot.held,
        set_aside=record.snapshot.set_aside,
        decision=record.decision,
        answers=record.answers,
        resting=record.snapshot.resting,
        usage=record.snapshot.usage,
        reservations=record.snapshot.reservations,
        refused_evictions=record.snapshot.refused_evictions or msgspec.UNSET,
        chosen_policy=record.snapshot.chosen_policy or msgspec.UNSET,
        pod_devices=record.snapshot.pod_devices or msgspec.UNSET,
        rejected=record.snapshot.rejected or msgspec.UNSET,
    )
    body = _canonical(msgspec.json.encode(session))
    digest = _digest(body)
    content = msgspec.json.encode(_Sealed(digest, msgspec.Raw(body)))
    return gzip.compress(content, compresslevel=_GZIP_LEVEL, mtime=0), digest


def write_session_file(path: Path, record: SessionRecord) -> str:
    """Write a recorded session to a file, and return the digest of the session.

    Raises:
      InvalidInput: The file cannot be written.
    """
    content, digest = encode_session_file(record)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror}", file=str(path)) from error
    return digest


def read_session_file(path: Path) -> SessionRecord:
    """Read a session file, check its digest, and return the recorded session.

    Raises:
      InvalidInput: The file is not a session file, or has another format.
      DigestMismatch: The content does not match the digest.
    """
    file = str(path)
    sealed = _sealed(path)
    try:
        body = _canonical(sealed.session)
    except (ValueError, RecursionError) as error:  # not UTF-8, or nested too deeply
        problem = to_field_error(error)
        raise InvalidInput(f"is not a recorded session, or a damaged one: {problem}", file=file) from error
    if _digest(body) != sealed.digest:
        raise DigestMismatch(
            f"{file}: the content does not match its digest {sealed.digest[:19]}…: it was changed after it was "
            "recorded; record the session anew"
        )
    _check_format(body, file)
    try:
        session = msgspec.json.decode(body, type=_Session)
        profile = Profile.model_validate(session.profile)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"is not a recorded session: {to_field_error(error)}", file=file) from error
    except ValidationError as error:
        first = field_errors(error, Profile)[0]
        raise InvalidInput(first.message, file=file, object="profile", field=first.field) from error
    snapshot = decode_snapshot_from_json(bytes(session.manifests), file)
    snapshot = replace(
        snapshot,
        held=session.held,
        resting=session.resting,
        usage=session.usage,
        reservations=session.reservations,
        refused_evictions=session.refused_evictions or (),
        chosen_policy=session.chosen_policy or "",
        pod_devices=session.pod_devices or (),
        rejected=session.rejected or (),
        set_aside=session.set_aside,
    )
    return SessionRecord(
        snapshot,
        profile,
        session.now,
        session.seed,
        session.decision,
        session.batchsched,
        session.answers,
    )


def _sealed(path: Path) -> _Sealed:
    file = str(path)
    try:
        content = decompress(path.read_bytes(), file)
    except gzip.BadGzipFile as error:
        raise InvalidInput(
            "is not a recorded session; expected a file that `batchsched record` or `decide --record` wrote",
            file=file,
        ) from error
    except (EOFError, zlib.error) as error:
        raise InvalidInput(f"is not a recorded session, or a damaged one: {error}", file=file) from error
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", file=file) from error
    try:
        return msgspec.json.decode(content, type=_Sealed)
    except ValueError as error:  # no JSON, or not UTF-8
        raise InvalidInput(f"is not a recorded session: {to_field_error(error)}", file=file) from error


def _check_format(body: bytes, file: str) -> None:
    file_format = msgspec.json.decode(body, type=_Format).format
    if file_format != FORMAT:
        raise InvalidInput(f"expected the format {FORMAT}, found {file_format!r}", file=file, field="format")


def _canonical(raw: bytes | msgspec.Raw) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(raw), order="sorted")


def _digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


_IDENTITY: Final = {
    "assignments": ("namespace", "pod"),
    "evictions": ("namespace", "pod"),
    "refusals": ("podGroup",),
    "reservations": ("podGroup",),
    "nominations": ("namespace", "pod"),
    "waiting": ("podGroup",),
    "setAside": ("file", "object", "field"),
}


@dataclass(frozen=True, slots=True)
class DecisionDifference:
    """One difference between the decision in a session file and the decision of its replay.

    Args:
      place: The list and the item, such as "assignments: team-a/bert-0".
      recorded: The recorded value, "" if there is none.
      now: The replayed value, "" if there is none.
    """

    place: str
    recorded: str
    now: str


def compare_decisions(recorded: Decision, now: Decision) -> tuple[DecisionDifference, ...]:
    """Return the differences between a recorded decision and the replayed decision, without telemetry."""
    before, after = (
        decision_json(without_measured_durations(recorded)),
        decision_json(without_measured_durations(now)),
    )
    if before == after:
        return ()
    old, new = msgspec.json.decode(before), msgspec.json.decode(after)
    differing = [difference for name in _IDENTITY for difference in _in_list(name, old[name], new[name])]
    differing += [
        DecisionDifference(f"solver.{field}", _text(old["solver"][field]), _text(new["solver"][field]))
        for field in old["solver"]
        if old["solver"][field] != new["solver"][field]
    ]
    return tuple(differing) or (DecisionDifference("the order of items", "as recorded", "another"),)


def _in_list(
    name: str, old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]
) -> list[DecisionDifference]:
    before, after = _by_identity(name, old), _by_identity(name, new)
    return [
        DecisionDifference(f"{name}: {key}", _text(before.get(key)), _text(after.get(key)))
        for key in dict.fromkeys((*before, *after))
        if before.get(key) != after.get(key)
    ]


def _by_identity(name: str, items: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    items_by_key: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        key = "/".join(str(item[field]) for field in _IDENTITY[name])
        rest = {field: value for field, value in item.items() if field not in _IDENTITY[name]}
        items_by_key.setdefault(key, []).append(rest)
    return items_by_key


def _text(value: Any) -> str:
    """Format a value of a decision as readable text, such as `node: n1`; None gives ""."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "; ".join(_text(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(
            f"{field}: {_text(part)}" for field, part in value.items() if part not in ("", {}, [])
        )
    return str(value)
