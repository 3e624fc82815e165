"""Reactive Streams: subscribers that set the pace, operators, executors, and bridges to asyncio, threads and callbacks."""

import flow as _flow
from flow import *  # noqa: F403 - the whole kit, see __all__ there

__all__ = _flow.__all__
