"""Bounds for the costs that clients cause.

* `pool`: threads, shared fairly among clients.
* `shared_bytes`: bytes in memory, of which no client gets all.
* `charged_file`: a transaction that arrives, in memory or in a file.
* `rates`: bytes a second.
* `weight`: the weight of the criteria of all subscriptions.
"""
