"""Sockets.

* `accepting`: connections, as long as the process has descriptors.
* `sockets`: options and counters that asyncio lacks. `listening`: servers. `trust`: TLS of clients.
* `descriptors`: sockets that a child of ``fork`` has inherited.
"""
