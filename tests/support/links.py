"""Links of a bad network: connections pass a process that delays, narrows or resets them.

Round trips take longer, bytes come slowly, and some of what is sent is answered by a reset. All
links of a test run in one thread.
"""

import asyncio
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

Place = tuple[str, int]  # address and port
CHUNK = 16 << 10
QUEUED = 64
LINGER = struct.pack("ii", 1, 0)  # closing it then sends a reset


@dataclass
class Weather:
    """What links do to each connection; `resets_done` counts those that were reset, by their ends.

    `delay`: seconds, in each direction. `rate`: bytes per second, in each direction. `resets`: the
    share of what is sent (in chunks of 16 kB at most) that is lost with its connection.
    """

    delay: float = 0.0
    rate: float = float("inf")
    resets: float = 0.0
    resets_done: Counter[Place] = field(default_factory=Counter)


@contextmanager
def links(places: Mapping[Place, Place], weather: Weather) -> Iterator[None]:
    """Run links from places of this machine to others until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(_listen(places, weather), loop).result(30)
        yield
    finally:
        asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _listen(places: Mapping[Place, Place], weather: Weather) -> None:
    for (address, port), to in places.items():
        server = await asyncio.start_server(partial(_pass_on, to, weather), address, port)
        _kept.add(asyncio.create_task(server.serve_forever()))


_kept: set[asyncio.Task[Any] | None] = set()  # a loop keeps none, and what waits may go


async def _cancel_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    _kept.difference_update(others)


async def _pass_on(
    to: Place, weather: Weather, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Pass on one connection in both directions until one side, or the test, ends it."""
    task = asyncio.current_task()
    _kept.add(task)
    try:
        with suppress(asyncio.CancelledError):  # asyncio logs it of a handler
            await _passed_on(to, weather, reader, writer)
    finally:
        _kept.discard(task)


async def _passed_on(
    to: Place, weather: Weather, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    ends = [writer]
    try:
        there_reader, there_writer = await asyncio.open_connection(*to)
        ends.append(there_writer)
        async with asyncio.TaskGroup() as both:
            both.create_task(_direction(reader, there_writer, to, weather))
            both.create_task(_direction(there_reader, writer, to, weather))
    except* OSError:
        for end in ends:  # as a router that lost the connection: both sides are told
            with suppress(OSError):  # it is closed already
                end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
            end.transport.abort()
    finally:
        for end in ends:
            end.close()


async def _direction(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: Place, weather: Weather
) -> None:
    """Deliver what comes, each chunk after its delay; ConnectionResetError with a reset."""
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUED)
    now = asyncio.get_running_loop().time

    async def receive() -> None:
        while chunk := await reader.read(CHUNK):
            await queue.put((now() + weather.delay, chunk))
        await queue.put((now() + weather.delay, b""))

    async def deliver() -> None:
        while True:
            due, chunk = await queue.get()
            await asyncio.sleep(max(0.0, due - now()))
            if not chunk:
                with suppress(OSError):
                    writer.write_eof()
                return
            if random.random() < weather.resets:  # noqa: S311 - no secret
                weather.resets_done[to] += 1
                raise ConnectionResetError
            writer.write(chunk)
            await writer.drain()
            await asyncio.sleep(len(chunk) / weather.rate)

    async with asyncio.TaskGroup() as both:
        both.create_task(receive())
        both.create_task(deliver())
