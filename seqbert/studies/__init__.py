"""Grids of runs: what is varied, what was measured, and what that says about a claim."""
