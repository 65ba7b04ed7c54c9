"""Tests of one group share a worker of pytest-xdist: Spark is started once, not in each."""

import os

import pytest


@pytest.mark.xdist_group("grouped")
def test_a_group_is_in_the_names_that_go_to_the_workers(request: pytest.FixtureRequest) -> None:
    """Releases of pytest and pytest-xdist that do not know each other lose it without a word."""
    shared = "PYTEST_XDIST_WORKER" in os.environ
    assert request.node.nodeid.endswith("@grouped") is shared
