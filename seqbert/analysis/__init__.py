"""What can be said about a model without training it, and about what it has learned."""
