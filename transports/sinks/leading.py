"""Whether a runner holds the lease."""

from transports.sinks.lease import Lease

__all__ = ["SinkLeading"]


class SinkLeading:
    """One runner's view of the lease.

    Args:
        lease: The lease; None for a runner that always sends.

    Attributes:
        epoch: The epoch of the lease that the runner sends under; None without a lease, or while it is not held.
    """

    def __init__(self, lease: Lease | None) -> None:
        self._lease = lease
        self.epoch = None if lease is None else lease.epoch

    @property
    def shared(self) -> bool:
        """Whether several runners share the lease."""
        return self._lease is not None

    @property
    def holds(self) -> bool:
        """Whether to send and store: the lease is held, and has been since the slot was opened under it."""
        lease = self._lease
        return lease is None or (lease.epoch == self.epoch and lease.held())

    def gain(self) -> bool:
        """Looks for a new gain of the lease, after which what was read before must be dropped; returns whether it is held."""
        if self._lease is not None:
            self.epoch = self._lease.epoch
        return self._lease is None or self._lease.held()
