"""How changes reach subscribers.

* `PublishGate` makes durable transactions visible in version order: the only publication point.
* `Registry` has one `SharedPublisher`, with a `Ring` of recent matching changes, for all subscriptions with equal criteria.
* `ChangeSubscription` has a `Cursor`, which reads from the ring, or from the WAL when it lags (`Replayer`). `state` has the table of
  its states.
* `DeliveryGroup` serves subscriptions with equal progress together; `Gating` makes writers wait for slow subscribers.
"""
