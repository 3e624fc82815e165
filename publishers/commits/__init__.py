"""How changes enter the log: transactions, the queue, group commit, and the publish gate."""

from publishers.commits.builder import TransactionBuilder, TransactionState
from publishers.commits.group_commit import Commit, Committer
from publishers.fanout.publish_gate import PublishGate

__all__ = ["Commit", "Committer", "PublishGate", "TransactionBuilder", "TransactionState"]
