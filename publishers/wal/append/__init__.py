"""The write path of the WAL: sealed transactions become frames of the active segment.

* `Transaction` is sealed outside every lock: payloads with their crc.
* `Writer` appends a group of transactions with one write, syncs, and rolls to the next segment.
* `ActiveSegment` is the segment that is written; `staged` has parts that other processes have sealed.
"""
