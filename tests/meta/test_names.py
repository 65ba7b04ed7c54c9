"""Names of tests stay short: each goes to every worker, and into reports and command lines."""

import pytest


def test_no_name_of_a_test_is_as_long_as_its_values(request: pytest.FixtureRequest) -> None:
    assert [item.nodeid[:200] for item in request.session.items if len(item.nodeid) > 1000] == []
