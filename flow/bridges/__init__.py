"""Bridges between publishers and other styles.

* Out: `aiter` (asyncio), `iter_blocking`, `subscribe` (callbacks), `AsyncSubscriber` (coroutines), `to_observable` (reactivex).
* In: `from_async_iterable`, `from_observable`.
"""
