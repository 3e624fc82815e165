"""Ways out of the reactive world, and into it: asyncio iterators, blocking iterators, callbacks, reactivex."""
