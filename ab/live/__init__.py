"""``cqstore ab live`` and ``policy``: what a store in service tells of its backends."""
