"""HTTP handlers below /debug, which show the cluster state, the scheduling queue and recorded sessions.

All but one are read-only. As in the Kubernetes components, `PUT /debug/flags/v` changes the log verbosity.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from batchsched.observability.activity_recorder import SessionHistory
from batchsched.observability.logs import log_info, set_verbosity
from batchsched.ports.cluster import wall_clock_offset
from batchsched.scheduler.app import SchedulerApp
from batchsched.scheduler.live_snapshot import create_scheduler_from_cluster
from batchsched.scheduling_queue.entity import Entity
from batchsched.state.debugger import OVERDUE_SECONDS, compare_snapshots, dump_state

_LOG: Final = logging.getLogger(__name__)
_MAX_VERBOSITY: Final = 10
"""Highest verbosity that klog defines."""
_MAX_DIGITS: Final = 18
"""Maximum number of digits that are read as a number; Python refuses to read numbers of more than 4,300."""
_INDEX: Final = """/debug/cache          nodes, their pods and pending pods, as in the scheduler's cache
/debug/cache/drift    differences between the cache and a fresh list of the API
/debug/queue          pending gangs and pods: part of the queue, reason and time
/debug/sessions       recent sessions, newest first
/debug/sessions/ID    one session as a file for `batchsched replay`
/debug/flags/v        PUT a number to set the log verbosity, as -v does
/configz              the configuration in force
/metrics              counters and gauges
"""


class DebugHandlers:
    """HTTP handlers for the paths below /debug.

    Args:
      service: The scheduler.
      sessions: The recorded sessions.
    """

    def __init__(self, service: SchedulerApp, sessions: SessionHistory) -> None:
        self._service = service
        self._sessions = sessions

    def http_routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes below /debug."""
        answers: dict[str, Callable[[web.Request], Awaitable[web.Response]]] = {
            "/debug": self._index,
            "/debug/cache": self._dump,
            "/debug/cache/drift": self._drift,
            "/debug/queue": self._queue,
            "/debug/sessions": self._list,
            "/debug/sessions/{id}": self._session,
        }
        reads = [web.get(path, answer) for path, answer in answers.items()]
        return [*reads, web.put("/debug/flags/v", self._verbosity)]

    async def _index(self, request: web.Request) -> web.Response:
        return web.Response(text=_INDEX)

    async def _dump(self, request: web.Request) -> web.Response:
        cache = self._service.cache
        snapshot, assumed = cache.snapshot(), cache.assumed_pods()
        text = await asyncio.to_thread(lambda: dump_state(snapshot, assumed).text())
        return web.Response(text=f"{text}\n")

    async def _drift(self, request: web.Request) -> web.Response:
        """Compare the cluster state with a fresh list from the API server."""
        service, cache = self._service, self._service.cache
        fresh = (
            await create_scheduler_from_cluster(
                service.connection, service.clock, service.profiles, service.grouping
            )
        ).cache.snapshot_without_assumptions()
        overdue_since = service.clock.steady_now() - OVERDUE_SECONDS
        drift = compare_snapshots(
            cache.snapshot_without_assumptions(),
            fresh,
            cache.scheduler_names,
            cache.assumed_pods(),
            overdue_since,
        )
        return web.Response(text=f"{drift.text()}\n")

    async def _queue(self, request: web.Request) -> web.Response:
        wall_offset = wall_clock_offset(self._service.clock)
        entities = {
            profile_scheduler.profile.scheduler_name: [
                _entity(entity, wall_offset) for entity in profile_scheduler.queue.entities()
            ]
            for profile_scheduler in self._service.profile_schedulers
        }
        return _json(entities)

    async def _verbosity(self, request: web.Request) -> web.Response:
        verbosity = (await request.read()).decode("ascii", "replace").strip()
        short = len(verbosity) <= _MAX_DIGITS
        if not (short and verbosity.isdecimal() and int(verbosity) <= _MAX_VERBOSITY):
            return web.Response(
                status=400,
                text=f"expected a number from 0 to {_MAX_VERBOSITY}, found {verbosity[:_MAX_VERBOSITY]!r}\n",
            )
        set_verbosity(int(verbosity))
        log_info(_LOG, 0, "Log verbosity changed", verbosity=int(verbosity))
        return web.Response(text=f"verbosity is {verbosity} now\n")

    async def _list(self, request: web.Request) -> web.Response:
        return _json(self._sessions.summaries())

    async def _session(self, request: web.Request) -> web.Response:
        number = request.match_info["id"]
        is_number = number.isdecimal() and len(number) <= _MAX_DIGITS
        session = self._sessions.get_session(int(number)) if is_number else None
        if session is None:
            return web.Response(
                status=404,
                text=f"there is no session {number[:_MAX_DIGITS]!r}; /debug/sessions lists them\n",
            )
        content = await asyncio.to_thread(session.encode_as_session_file)
        name = f'attachment; filename="session-{session.number}.json.gz"'
        return web.Response(
            body=content, content_type="application/gzip", headers={"Content-Disposition": name}
        )


def _entity(entity: Entity, wall_offset: float) -> dict[str, Any]:
    return {
        "podGroup": entity.identity,
        "place": entity.place.value,
        "pods": sorted(entity.pods),
        "attempts": entity.attempts,
        "queued": entity.queued + wall_offset,
        "refusedBy": entity.refused_by,
        "gatedBy": entity.gated_by,
    }


def _json(data: Any) -> web.Response:
    text = msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    return web.Response(text=text + "\n", content_type="application/json")
