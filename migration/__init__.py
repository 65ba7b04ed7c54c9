"""Move queues between backends and verify the result: the functions of ``cqstore migrate``.

These names do not change between releases; the modules below this package may. Each name is
imported when it is first used. No name equals that of a module below, which would replace it.
"""

from cqstore.store.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(globals())
