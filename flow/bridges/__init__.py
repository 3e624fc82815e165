"""Bridges to and from other styles: asyncio iterators, blocking iterators, callbacks, reactivex."""
