"""The group consumers that clients address by name: one per name, whichever connections use it."""

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from publishers.groups import ConsumerGroup, GroupMember
    from publishers.log.changelog import ChangeLog

__all__ = ["GroupMembers"]

_JOINING: Final = 16

_Key = tuple["ChangeLog", str, str]


class GroupMembers:
    """The consumers that have joined here, by log, group and name; from any thread.

    The most recently used ones are kept. One that was dropped joins again when it is used, and keeps its deliveries.

    Args:
        most: The number of consumers to keep: option ``resp_consumers``.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[_Key, GroupMember] = OrderedDict()
        self._lock = threading.Lock()
        self._joining = [threading.Lock() for _ in range(_JOINING)]

    def __len__(self) -> int:
        return len(self._known)

    def get(self, log: "ChangeLog", group: "ConsumerGroup", consumer: str) -> "GroupMember":
        """Returns the consumer of a name, which joins if it has not.

        Raises:
            InvalidOption, TooCostly, GroupError: As ``ConsumerGroup.join``.
        """
        key = (log, group.name, consumer)
        with self._joining[hash(key) % _JOINING]:  # a second joining would fence the first
            found = self.find(log, group, consumer)
            if found is None:
                found = group.join(consumer)
                with self._lock:
                    self._known[key] = found
                    while len(self._known) > self._most:
                        self._known.popitem(last=False)
            return found

    def find(self, log: "ChangeLog", group: "ConsumerGroup", consumer: str) -> "GroupMember | None":
        """Returns the consumer of a name, if it has joined here."""
        key = (log, group.name, consumer)
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
        return found

    def forget(self, log: "ChangeLog", group: "ConsumerGroup", member: "GroupMember") -> None:
        """Drops a consumer that has left or was fenced."""
        key = (log, group.name, member.name)
        with self._lock:
            if self._known.get(key) is member:
                del self._known[key]
