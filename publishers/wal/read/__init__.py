"""Reading the WAL.

* `Catalog` has the segments of an open log, with their shared open files.
* `Reader` reads verified frames in order, never beyond a limit.
* `presence` checks that the open files are still those at the path.
"""
