"""``cqstore ab live`` and ``policy``: figures of a store in service about its backends."""
