"""Deadlines for plugins of other packages: a plugin that exceeds its deadline is not called again.

Plugins that are part of batchsched are called directly, without this cost.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from threading import get_ident
from typing import Any, Final, TypeVar

import numpy as np
from typing_extensions import override

from batchsched.errors import PluginDeadlineExceeded
from batchsched.framework.runtime.plugin_call import plugin_name
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
from batchsched.ports.external import ExceededDeadline, PluginRunner

T = TypeVar("T")

OURS: Final = "batchsched."
_AWAITED: Final = ("prebind", "undo_prebind", "bind", "postbind")
"""Methods that are awaited with a timeout of their own, and so need no deadline here."""
_STATED: Final = ("traits", "events_to_register")
"""Attributes and methods that describe the plugin; they are passed on unchanged."""
_EXTRA: Final = {
    "signature": "Signature",
    "selector_label_keys": "Signature",
    "object_selector_label_keys": "Signature",
    "add_pod": "AddPod",
    "remove_pod": "RemovePod",
    "allows_bulk_placement": "Filter",
    "ignores_resource": "Filter",
    "reserves_nothing": "Reserve",
    "hold_for_nominated_pod": "Reserve",
    "stop_holding_for_nominated_pod": "Reserve",
    "writes_in_prebind": "PreBind",
}
_POINT_OF: Final = {one.method: name for name, one in POINTS.items() if one.method not in _AWAITED} | _EXTRA
_NO: Final = PostFilterAnswer(Status(Code.UNSCHEDULABLE))


def _all_fit(*arguments: Any) -> Verdict:
    return Verdict.accept(_nodes(arguments))


def _no_score(*arguments: Any) -> IntArray:
    return np.zeros(_nodes(arguments), np.int64)


def _nodes(arguments: tuple[Any, ...]) -> int:
    """Return the number of nodes in a call: the view is the argument before the cycle state, which is last."""
    return len(arguments[-2])


_LEFT_OUT: Final[Mapping[str, Callable[..., Any]]] = {
    "signature": lambda *_: None,
    "selector_label_keys": lambda *_: frozenset(),
    "object_selector_label_keys": lambda *_: frozenset(),
    "preenqueue": lambda *_: SUCCESS,
    "sort_key": lambda *_: 0,
    "prefilter": lambda *_: SKIP_FILTER,
    "add_pod": lambda *_: None,
    "remove_pod": lambda *_: None,
    "filter": _all_fit,
    "allows_bulk_placement": lambda *_: True,
    "postfilter": lambda *_: _NO,
    "prescore": lambda *_: SKIP,
    "score": _no_score,
    "normalize": _no_score,
    "constrain": lambda *_: (),
    "ignores_resource": lambda *_: False,
    "reserves_nothing": lambda *_: True,
    "writes_in_prebind": lambda *_: False,
    "reserve": lambda *_: SUCCESS,
    "unreserve": lambda *_: None,
    "hold_for_nominated_pod": lambda *_: None,
    "stop_holding_for_nominated_pod": lambda *_: None,
    "permit": lambda *_: PermitAnswer(),
}
"""Answers in place of a disabled plugin: it refuses no pod and scores no node."""


class PluginWithDeadline:
    """A wrapper that calls a plugin of another package with a deadline.

    It has the methods of the plugin, and so its extension points.
    """

    def __init__(self, plugin: object, deadline: PluginRunner) -> None:
        self.plugin = plugin
        self.name = plugin_name(plugin)
        self.overdue: ExceededDeadline | None = deadline.find_exceeded_deadline(self.name)
        self._deadline = deadline
        # Only existing methods are copied: the pipeline finds extension points by their methods.
        for method, point in _POINT_OF.items():
            call = getattr(plugin, method, None)
            if call is not None:
                setattr(self, method, partial(self._ask, method, point, call))
        for name in (*_AWAITED, *_STATED):
            if hasattr(plugin, name):
                setattr(self, name, getattr(plugin, name))

    def _ask(self, method: str, point: str, call: Callable[..., Any], *args: Any) -> Any:
        if self.overdue is not None:
            # A call that did not return may still be running; another call could corrupt the plugin's state.
            return _LEFT_OUT[method](*args)
        try:
            return self._deadline.call_within_deadline(self.name, point, partial(call, *args))
        except PluginDeadlineExceeded:
            self.overdue = self._deadline.find_exceeded_deadline(self.name)
            raise


def wrap_with_deadline(plugin: object, deadline: PluginRunner | None) -> object:
    """Wrap a plugin so that each call of the plugin has a deadline.

    The plugin is returned unchanged if it is built in or `deadline` is None.
    """
    return (
        plugin
        if deadline is None or is_builtin_plugin(type(plugin))
        else PluginWithDeadline(plugin, deadline)
    )


def is_builtin_plugin(plugin: type) -> bool:
    """Return True if a plugin class is part of batchsched."""
    return plugin.__module__.startswith(OURS)


def is_external_plugin(plugin: object) -> bool:
    """Return True if a plugin of a pipeline is from another package, with or without a deadline."""
    return isinstance(plugin, PluginWithDeadline) or not is_builtin_plugin(type(plugin))


def exceeded_deadlines(plugins: tuple[object, ...]) -> tuple[ExceededDeadline, ...]:
    """Return the deadlines that plugins have exceeded; these plugins are no longer called."""
    return tuple(
        plugin.overdue
        for plugin in plugins
        if isinstance(plugin, PluginWithDeadline) and plugin.overdue is not None
    )


class AbandonedSessionError(BaseException):
    """Raised in the thread of an abandoned session when the plugin call that exceeded its deadline returns.

    It is not an `Exception`, so that plugins do not catch it by accident.
    """


class CountingPluginRunner(PluginRunner):
    """A runner that counts a session's plugin calls, and skips calls that exceeded their deadline before.

    The recorded numbers let a repeated session skip exactly the call that did not return.

    Args:
      exceeded: exceeded deadlines of this session and of earlier ones.
    """

    def __init__(self, exceeded: Iterable[ExceededDeadline] = ()) -> None:
        deadlines = tuple(exceeded)
        self._late = {one.call: one for one in deadlines if one.call}
        self._overdue = {one.plugin: one for one in deadlines if not one.call}
        self._calls = 0
        self.current: tuple[int, str, str] | None = None
        """The current call: its number, the plugin and the extension point."""
        self.abandoned = False
        """True if the session was given up and its result is no longer needed."""
        self._thread: int | None = None

    def begin_session(self) -> None:
        """Begin a session in the calling thread, and count its plugin calls from 1.

        Calls of other threads, such as bindings, have no deadline.
        """
        self._calls = 0
        self._thread = get_ident()

    @override
    def find_exceeded_deadline(self, plugin: str) -> ExceededDeadline | None:
        return self._overdue.get(plugin)

    @override
    def call_within_deadline(self, plugin: str, point: str, call: Callable[[], T]) -> T:
        if self._thread is not None and self._thread != get_ident():
            return call()
        # The number identifies the call in a repeated session, where plugins are called in the same order.
        self._calls += 1
        late = self._late.get(self._calls)
        if late is not None and late.plugin == plugin:
            self._overdue[plugin] = late
            raise PluginDeadlineExceeded(plugin, point, late.message)
        self.current = (self._calls, plugin, point)
        try:
            return call()
        finally:
            self.current = None
            # Another session may have started since: this thread must not change anything any more.
            if self.abandoned:
                raise AbandonedSessionError
