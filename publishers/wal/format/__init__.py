"""The format of frames: bytes to values and back, without file access.

* `FrameHeader` and `Chain`: the header of a frame, and its link to the previous one.
* `Columns`: the changes of a frame in buffers that Arrow can use.
* `control`: CHECKPOINT and EPOCH frames, with the tables of producers and epochs.
"""
