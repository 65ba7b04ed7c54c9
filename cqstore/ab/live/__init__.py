"""``cqstore ab live`` and ``policy``: what a store in service shows of its backends."""
