"""What ``ChangeLog.commit`` takes: changes of entities and of schemas, and copies of changes that another log delivered."""

from publishers.mutations.mutation import Mutation, copied, expire, rekey, remove, schema, truncate, upsert

__all__ = ["Mutation", "copied", "expire", "rekey", "remove", "schema", "truncate", "upsert"]
