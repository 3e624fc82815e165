"""Bounds for the costs that clients cause.

* `pool`: threads, shared fairly among clients.
* `shared_bytes`: bytes in memory.
* `rates`: bytes a second.
* `weight`: the weight of the criteria of all subscriptions.
"""
