"""How long segments stay on the disk.

* `retention` decides which segments are deleted, and deletes them.
* `holds` are positions that consumers still need, each with caps.
* `segment_ages` measures ages by a wall clock that may be wrong.
* `hard_links` keeps segments for a consumer in another process.
"""
