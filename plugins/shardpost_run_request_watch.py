"""The trigger that starts `dispatch_run_requests` when a run is requested.

It reads no requests: it compares the ends of their topic with the offsets that were dispatched, so
it loses none, whenever Airflow's triggerer stops or starts. One event covers all that wait.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from shardpost.errors import ShardpostError
from shardpost.orchestration.connections import task_installation
from shardpost.settings import declared

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
RETRY_SECONDS = 10.0


class RunRequestWatch(BaseEventTrigger):
    """Fires when run requests wait to be dispatched."""

    def __init__(self, installation: str = "") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._installation = installation

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and arguments from which Airflow recreates the trigger."""
        named = {"installation": self._installation} if self._installation else {}
        return "shardpost_run_request_watch.RunRequestWatch", named

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield {"ends": {partition: end}} each time there is something to dispatch, for ever."""
        while True:
            try:
                async for ends in _pending_ends(self._installation):
                    yield TriggerEvent({"ends": ends})  # type: ignore[no-untyped-call]
            except Exception as error:
                is_ours = isinstance(error, ShardpostError)
                text = "%s; trying again in %g s"
                log.warning(text, error, RETRY_SECONDS, exc_info=not is_ours)
                await asyncio.sleep(RETRY_SECONDS)


async def _pending_ends(installation: str) -> AsyncIterator[dict[int, int]]:
    from shardpost.run_requests.request_topics import RequestWatch

    def opened() -> RequestWatch:
        return RequestWatch(task_installation(declared(installation)).kafka)

    watch = await asyncio.to_thread(opened)
    try:
        while True:
            ends = await asyncio.to_thread(watch.pending_ends)
            if ends is not None:
                yield ends
            await asyncio.sleep(POLL_SECONDS)
    finally:
        await asyncio.to_thread(watch.close)
