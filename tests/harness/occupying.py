"""Applications whose calls that block occupy every thread of their event loop's default pool."""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

__all__ = ["occupied_pool"]


@asynccontextmanager
async def occupied_pool(seconds: float = 20.0) -> AsyncIterator[None]:
    """Runs a block while no thread of the running loop's default pool is free; fails it after so many seconds."""
    loop = asyncio.get_running_loop()
    begun, over = asyncio.Event(), threading.Event()

    def occupy() -> None:
        loop.call_soon_threadsafe(begun.set)
        over.wait()

    loop.set_default_executor(ThreadPoolExecutor(1, "occupied"))
    call = asyncio.ensure_future(asyncio.to_thread(occupy))
    try:
        async with asyncio.timeout(seconds):
            await begun.wait()
            yield
    finally:
        over.set()
        await call
