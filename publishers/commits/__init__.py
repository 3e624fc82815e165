"""How changes enter the log.

* `TransactionBuilder` collects the changes of a ``with`` block.
* `CommitQueue` has the waiting commits; `Committer` writes them in groups, led by one of the calling threads.
* `Arrivals` leads the groups of submitted commits, whose callers do not wait.
* `Withheld` holds transactions that are durable and not visible yet.
"""

from publishers.commits.builder import TransactionBuilder, TransactionState
from publishers.commits.group_commit import Commit, Committer
from publishers.fanout.publish_gate import PublishGate

__all__ = ["Commit", "Committer", "PublishGate", "TransactionBuilder", "TransactionState"]
