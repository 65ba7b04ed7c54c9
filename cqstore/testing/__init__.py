"""A broker for tests of programs that use RocketMQ's clients: no Java, no container, no server.

``running_broker`` is a context manager for any test framework; ``cqstore.testing.pytest_plugin``
has it as a fixture of pytest. The names in this package do not change between releases. Each name
is imported when it is first used.
"""

from cqstore.store.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(globals())
