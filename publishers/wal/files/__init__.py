"""The files of a log.

* `Head` records what is durable, `Tail` what is visible to other processes.
* `segment` has the names, headers and indexes of segments.
* `MirroredFile` is a small file that is stored twice.
* `directory` has the lock of the only writer.
"""
