"""How changes get into the log: transactions, the queue, group commit, and the publish gate."""

from publishers.commits.builder import TransactionBuilder, TransactionState
from publishers.commits.committer import Commit, Committer
from publishers.commits.publication import Publication

__all__ = ["Commit", "Committer", "Publication", "TransactionBuilder", "TransactionState"]
