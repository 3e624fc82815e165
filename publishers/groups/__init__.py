"""Groups: many consumers that share the changes of a log, each change with one of them, with acknowledgements.

::

    groups/NAME/JOURNAL        what is done: the first frame holds all of it, each further one what has changed since
    groups/NAME/JOURNAL.copy   the same, written and synced after it

`machine` decides what is delivered to which consumer, without threads, files and log; the others are around it.
"""
