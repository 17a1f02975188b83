"""The one training loop, and the two ways to run it."""
