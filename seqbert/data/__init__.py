"""From documents to packed batches."""
