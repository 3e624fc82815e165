"""The verification kit of Reactive Streams, for publishers and subscribers of your own; it needs pytest."""

import flow.tck as _kit
from flow.tck import *  # noqa: F403 - the whole kit, see __all__ there

__all__ = _kit.__all__
