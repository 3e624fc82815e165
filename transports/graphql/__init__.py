"""GraphQL operations: parsed, weighed, and executed once for all clients with the same operation.

Needs the extra ``graphql``: ``pip install 'penstock-cdc[graphql,server]'``.
"""
