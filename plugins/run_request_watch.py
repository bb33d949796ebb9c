"""The trigger that starts `dispatch_run_requests` when somebody asks for a run.

It does not read requests: it compares the ends of their topic with what was dispatched, so it
cannot lose one, whenever Airflow's triggerer stops or starts. One event stands for all that came.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from shardpost.errors import ShardpostError
from shardpost.settings import load

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
AFTER_AN_ERROR_SECONDS = 10.0


class RunRequestWatch(BaseEventTrigger):
    """Fires when run requests have come that nobody has dispatched yet."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return how Airflow makes it again."""
        return "run_request_watch.RunRequestWatch", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield {"ends": {partition: end}} whenever there is something to dispatch, for ever."""
        while True:
            try:
                async for ends in _news():
                    yield TriggerEvent({"ends": ends})  # type: ignore[no-untyped-call]
            except ShardpostError as error:
                log.warning("%s; looking again in %g s", error, AFTER_AN_ERROR_SECONDS)
                await asyncio.sleep(AFTER_AN_ERROR_SECONDS)


async def _news() -> AsyncIterator[dict[int, int]]:
    from shardpost.run_requests.request_watch import RequestWatch

    watch = await asyncio.to_thread(RequestWatch, load())
    try:
        while True:
            ends = await asyncio.to_thread(watch.news)
            if ends is not None:
                yield ends
            await asyncio.sleep(POLL_SECONDS)
    finally:
        await asyncio.to_thread(watch.close)
