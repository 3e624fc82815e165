"""The HTTP endpoints ``/changes`` and ``/graphql``, and access from other origins.

* `changes` appends one transaction per request.
* `graphql` answers GraphQL over HTTP.
* `cors` decides which web pages may read responses.
"""
