"""Errors of channels, beside ``InvalidOption`` and ``InvalidCriteria``.

::

    PenstockError
    `-- ChannelsClosed         a message was published after the close
"""

from publishers.errors import PenstockError

__all__ = ["ChannelsClosed"]


class ChannelsClosed(PenstockError):
    """A message was published on channels that were closed."""

    says = "these channels were closed and pass on no more messages; make new ones"
