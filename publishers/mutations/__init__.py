"""The changes that writers commit, checked and in stored form.

* `upsert` and `remove` make a `Mutation`; `FieldChange` is a change of one field.
* `rows` encodes mutations as the columns of a frame.
"""
