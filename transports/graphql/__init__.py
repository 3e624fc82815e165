"""GraphQL at ``/graphql``: subscriptions over ``graphql-transport-ws``, queries over the same socket and over HTTP.

Needs the extra ``graphql``: ``pip install 'penstock-cdc[graphql,server]'``.
"""

from transports.graphql.endpoint import SUBPROTOCOL, GraphQLEndpoint

__all__ = ["SUBPROTOCOL", "GraphQLEndpoint"]
