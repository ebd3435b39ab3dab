"""batchsched: a gang and batch scheduler for Kubernetes.

One function makes all scheduling decisions: ``decide(snapshot, profile, now, seed) -> Decision``. It reads a frozen
snapshot of the cluster, and returns assignments of pods to nodes and refusals with their reasons. The running
scheduler, the commands, the simulator and the replay of recorded sessions all use it; none has a scheduler of its own.
Equal arguments give equal decisions, byte for byte.

The folders are layers. A module imports only modules of lower layers; the import contracts in ``pyproject.toml``
enforce this, and ``docs/architecture.md`` has a diagram of the layers.

The package exports the names of ``__all__`` for Python programs; ``docs/python-api.md`` describes them. They are
imported on first use, so that a command imports only what it needs. Modules of batchsched import them from where they
are defined, never from here. ``__init__.pyi`` states their types.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_MODULES = {
    "ClusterInput": "batchsched.python_api",
    "Decision": "batchsched.api.decision",
    "Profile": "batchsched.config.schema",
    "Snapshot": "batchsched.api.snapshot",
    "decide": "batchsched.session.session",
    "explain": "batchsched.python_api",
    "load_configuration": "batchsched.config.load",
    "read": "batchsched.python_api",
    "refusal_text": "batchsched.api.decision",
}
"""The exported names, and the modules that define them."""

__all__ = ["__version__", *_MODULES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    """Import an exported name on its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
