"""Ways out of the reactive world: asyncio iterators, blocking iterators, callbacks."""
