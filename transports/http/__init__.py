"""What is answered over HTTP: who may read it, and GraphQL."""
