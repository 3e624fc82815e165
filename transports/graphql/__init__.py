"""GraphQL operations: read, weighed, and executed once for all who ask for the same.

Needs the extra ``graphql``: ``pip install 'penstock-cdc[graphql,server]'``.
"""
