"""The Python client.

* `RemoteLog` is a log of a server; its `RemoteFeed` objects are publishers.
* `RemoteSlot` and `RemoteMember` are consumers whose positions the server keeps.
* `reconnect` connects, and reconnects after errors; the protocol itself is in `transports.protocol.client`.
"""
