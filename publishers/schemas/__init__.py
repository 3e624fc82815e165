"""The schemas of a log.

* `Schemas` has every version of the schema of each entity type.
* `Stamping` puts the schema version into each committed change.
"""
