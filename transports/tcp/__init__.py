"""Sockets.

* `sockets`: options and counters that asyncio lacks. `listening`: servers. `trust`: TLS of clients.
* `descriptors`: sockets that a child of ``fork`` has inherited.
"""
