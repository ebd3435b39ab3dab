"""Watched plugins: those of other packages are asked through a watchdog, and no more once they hang.

Our own plugins are trusted and asked directly: their calls cost nothing more.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
from typing_extensions import override

from batchsched.errors import PluginOverdue
from batchsched.framework.runtime.plugin_call import name_of
from batchsched.framework.runtime.result_validation import POINTS
from batchsched.framework.status import (
    SKIP,
    SKIP_FILTER,
    SUCCESS,
    Code,
    IntArray,
    PermitAnswer,
    PostFilterAnswer,
    Status,
    Verdict,
)
from batchsched.ports.plugin_deadline import DeadlineExceeded, PluginDeadline

T = TypeVar("T")

OURS: Final = "batchsched."
_AWAITED: Final = ("prebind", "bind", "postbind")
"""Whoever awaits these can give them up; no watchdog is needed."""
_STATED: Final = ("traits", "events_to_register")
"""What a plugin declares of itself."""
_EXTRA: Final = {
    "signature": "Signature",
    "label_keys": "Signature",
    "snapshot_label_keys": "Signature",
    "add_pod": "AddPod",
    "remove_pod": "RemovePod",
    "admits": "Filter",
    "ignores_resource": "Filter",
    "reserves_nothing": "Reserve",
}
_POINT_OF: Final = {one.method: name for name, one in POINTS.items() if one.method not in _AWAITED} | _EXTRA
_NO: Final = PostFilterAnswer(Status(Code.UNSCHEDULABLE))


def _all_fit(*given: Any) -> Verdict:
    return Verdict.accept(_nodes(given))


def _no_score(*given: Any) -> IntArray:
    return np.zeros(_nodes(given), np.int64)


def _nodes(given: tuple[Any, ...]) -> int:
    """Count the nodes of a call: they stand before the state, which stands last."""
    return len(given[-2])


_LEFT_OUT: Final[Mapping[str, Callable[..., Any]]] = {
    "signature": lambda *_: None,
    "label_keys": lambda *_: frozenset(),
    "snapshot_label_keys": lambda *_: frozenset(),
    "preenqueue": lambda *_: SUCCESS,
    "key": lambda *_: 0,
    "prefilter": lambda *_: SKIP_FILTER,
    "add_pod": lambda *_: None,
    "remove_pod": lambda *_: None,
    "filter": _all_fit,
    "admits": lambda *_: True,
    "postfilter": lambda *_: _NO,
    "prescore": lambda *_: SKIP,
    "score": _no_score,
    "normalize": _no_score,
    "constrain": lambda *_: (),
    "ignores_resource": lambda *_: False,
    "reserves_nothing": lambda *_: True,
    "reserve": lambda *_: SUCCESS,
    "unreserve": lambda *_: None,
    "permit": lambda *_: PermitAnswer(),
}
"""What a plugin that is left out would say: nothing for any pod, and nothing against it."""


class DeadlinePlugin:
    """A plugin of another package. It has the methods that the plugin has, and so is asked at the same points."""

    def __init__(self, plugin: object, watchdog: PluginDeadline) -> None:
        self.plugin = plugin
        self.name = name_of(plugin)
        self.overdue: DeadlineExceeded | None = watchdog.overdue(self.name)
        self._watchdog = watchdog
        for method, point in _POINT_OF.items():
            call = getattr(plugin, method, None)
            if call is not None:
                setattr(self, method, partial(self._ask, method, point, call))
        for name in (*_AWAITED, *_STATED):
            if hasattr(plugin, name):
                setattr(self, name, getattr(plugin, name))

    def _ask(self, method: str, point: str, call: Callable[..., Any], *args: Any) -> Any:
        if self.overdue is not None:
            return _LEFT_OUT[method](*args)
        try:
            return self._watchdog.watch(self.name, point, partial(call, *args))
        except PluginOverdue:
            self.overdue = self._watchdog.overdue(self.name)
            raise


def watched(plugin: object, watchdog: PluginDeadline | None) -> object:
    """Return a plugin of another package behind the watchdog, where there is one, and any other as it is."""
    return plugin if watchdog is None or is_ours(type(plugin)) else DeadlinePlugin(plugin, watchdog)


def is_ours(plugin: type) -> bool:
    """Tell whether a plugin comes with batchsched."""
    return plugin.__module__.startswith(OURS)


def left_out(plugins: tuple[object, ...]) -> tuple[DeadlineExceeded, ...]:
    """Return the plugins that hung, and are asked no more."""
    return tuple(
        one.overdue for one in plugins if isinstance(one, DeadlinePlugin) and one.overdue is not None
    )


class DisabledPlugin(BaseException):
    """Ends a session that was given up while a plugin hung, once the plugin comes back. No plugin may catch it."""


class DeadlineKeeper(PluginDeadline):
    """Counts the calls of watched plugins, and does not make those that are known to be overdue.

    Args:
      known: calls of this session, and of sessions before.
    """

    def __init__(self, known: Iterable[DeadlineExceeded] = ()) -> None:
        given = tuple(known)
        self._late = {one.call: one for one in given if one.call}
        self._overdue = {one.plugin: one for one in given if not one.call}
        self._calls = 0
        self.current: tuple[int, str, str] | None = None
        """The call that goes on: its number, the plugin and the point."""
        self.abandoned = False
        """Nobody waits for this session any more."""

    @override
    def overdue(self, plugin: str) -> DeadlineExceeded | None:
        return self._overdue.get(plugin)

    @override
    def watch(self, plugin: str, point: str, call: Callable[[], T]) -> T:
        self._calls += 1
        late = self._late.get(self._calls)
        if late is not None and late.plugin == plugin:
            self._overdue[plugin] = late
            raise PluginOverdue(plugin, point, late.problem)
        self.current = (self._calls, plugin, point)
        try:
            return call()
        finally:
            self.current = None
            if self.abandoned:
                raise DisabledPlugin
