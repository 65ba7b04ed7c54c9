"""Mutation sampling: small faults put into the code one at a time, to see whether a test notices.

``python -m tools.mutants`` (``make mutants``) draws a seeded sample of all mutations, runs for each
the quickest tests that touch its line, and reports what survived. Nothing here is installed.
"""
