"""The requests of batchsched to the API server and its refusals, read from the audit log."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

USER: Final = "system:serviceaccount:batchsched-system:batchsched"
"""The only user with audited calls."""
_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [USER]}, {"level": "None"}],
}


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """What a rule of a role gives, and a call needs.

    Args:
      group: of the API, "" for the core.
      resource: with its subresource, such as `pods/binding`.
      verb: as RBAC knows it.
    """

    group: str
    resource: str
    verb: str


def flags(home: Path) -> tuple[str, ...]:
    """Return the flags of kube-apiserver for the audit log in `home`."""
    policy = home / "audit-policy.yaml"
    policy.write_text(yaml.safe_dump(_POLICY))
    return (f"--audit-policy-file={policy}", f"--audit-log-path={_log(home)}")


def used(home: Path) -> set[Right]:
    """Return the rights that were used since the control plane began."""
    return {_right(one["objectRef"], one["verb"]) for one in _calls(home, 0) if "objectRef" in one}


@contextmanager
def nothing_forbidden(home: Path) -> Iterator[None]:
    """See that nothing is refused meanwhile for want of a right."""
    log = _log(home)
    begun = log.stat().st_size if log.exists() else 0
    yield
    refused = {f"{one['verb']} {one['requestURI']}" for one in _calls(home, begun) if _is_forbidden(one)}
    assert not refused, f"forbidden: {', '.join(sorted(refused))}"


@contextmanager
def nothing_bound_twice(home: Path) -> Iterator[None]:
    """See that meanwhile no binding of a pod is taken for a second time."""
    log = _log(home)
    begun = log.stat().st_size if log.exists() else 0
    yield
    taken = Counter(one["requestURI"] for one in _calls(home, begun) if _is_taken_binding(one))
    twice = sorted(path for path, times in taken.items() if times > 1)
    assert not twice, f"bound twice: {', '.join(twice)}"


def _log(home: Path) -> Path:
    return home / "audit.log"


def _calls(home: Path, begun: int) -> Iterator[dict[str, Any]]:
    log = _log(home)
    if log.exists():
        with log.open("rb") as lines:
            lines.seek(begun)
            for line in lines:
                if line.endswith(b"\n"):
                    yield json.loads(line)


def _is_forbidden(call: dict[str, Any]) -> bool:
    """Tell a missing right from other refusals with status 403, such as a namespace that is going away."""
    return bool(call.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid")


def _is_taken_binding(call: dict[str, Any]) -> bool:
    about, status = call.get("objectRef", {}), call.get("responseStatus", {})
    return bool(about.get("subresource") == "binding" and 200 <= status.get("code", 0) < 300)


def _right(about: dict[str, str], verb: str) -> Right:
    resource, sub = about["resource"], about.get("subresource")
    return Right(about.get("apiGroup", ""), f"{resource}/{sub}" if sub else resource, verb)
