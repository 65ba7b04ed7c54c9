"""Test ids that are the same with and without pytest-xdist."""


def without_group(node_id: str) -> str:
    """Return a test's id without the ``@group`` that ``--dist loadgroup`` appends to it."""
    group = node_id.rfind("@")
    return node_id[:group] if group > node_id.rfind("]") else node_id
