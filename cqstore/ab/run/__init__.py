"""``cqstore ab run``: the plan, the rounds and the result."""
