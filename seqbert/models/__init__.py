"""The shared encoder, its heads, and how their weights are read and written."""
