"""The wire formats.

* `events` encodes a change once for all clients with the same view.
* `messages` parses and validates what clients send; `replies` parses what a server sends.
* `starts` has the start positions, `changes` the JSON of changes that clients append.
"""
