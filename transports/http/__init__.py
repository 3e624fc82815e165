"""The HTTP endpoints: appends, GraphQL, and cross-origin access."""
