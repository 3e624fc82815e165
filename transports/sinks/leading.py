"""Whether a runner is the one of several that sends."""

from transports.sinks.lease import Lease

__all__ = ["SinkLeading"]


class SinkLeading:
    """The lease as one runner sees it.

    Args:
        lease: The lease; None for a runner that always sends.

    Attributes:
        epoch: Of the gain by which it sends; None where it has no lease, or does not hold it.
    """

    def __init__(self, lease: Lease | None) -> None:
        self._lease = lease
        self.epoch = None if lease is None else lease.epoch

    @property
    def shared(self) -> bool:
        """Whether there may be others."""
        return self._lease is not None

    @property
    def holds(self) -> bool:
        """Whether to send, and to store: the lease is held, and was all the time since the slot was opened by it."""
        lease = self._lease
        return lease is None or (lease.epoch == self.epoch and lease.held())

    def gain(self) -> bool:
        """Looks whether the lease was gained; what was read by an earlier gain is to be thrown away then."""
        if self._lease is not None:
            self.epoch = self._lease.epoch
        return self._lease is None or self._lease.held()
