"""Hooks of installed packages, provided by entry points; they run before those of the program.

An entry of ``cqstore.put_hooks`` or ``cqstore.dispatchers`` is a function that takes the root of a
store, and returns a ``PutMessageHook`` or a ``CommitLogDispatcher``, or ``None`` if it has none for
that store. They are called in the order of their names.

An entry of ``cqstore.interceptors`` is a function that takes the ``StoreComponents`` of a store
that is opened for writing, and returns an ``InstalledInterceptor`` or ``None``. Its name is the
field of ``StoreConfig`` that requests it: it is imported only if that field is set.

Source: RocketMQ ``DefaultMessageStore.getPutMessageHookList``, ``addDispatcher``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from cqstore.store.entry_points import entries
from cqstore.store.errors import StoreConfigError
from cqstore.store.service.dispatching.dispatcher_list import require_dispatcher
from cqstore.store.service.opening.components import StoreComponents
from cqstore.store.service.opening.options import OpenOptions
from cqstore.store.service.reading.read_interceptor import InstalledInterceptor
from cqstore.store.service.writing.put_hooks import require_put_hook
from cqstore.store.whole_import import load_whole

PUT_HOOKS = "cqstore.put_hooks"
DISPATCHERS = "cqstore.dispatchers"
INTERCEPTORS = "cqstore.interceptors"
REQUESTING = ("ab_share", "ab_shares")
"""Settings that require an interceptor: without one the store is refused."""


def with_installed(root: Path, options: OpenOptions) -> OpenOptions:
    """Return ``options`` with all hooks for the store in ``root``.

    Raises:
        StoreConfigError: a hook is invalid, or a package's hook cannot be created; or the store is
            read-only, and the program has hooks for it, which would not be called.
    """
    if options.read_only:
        if options.hooks.put_hooks or options.hooks.dispatchers:
            raise StoreConfigError(
                "put hooks and dispatchers are not supported in a store that is opened read-only",
                path=root,
            )  # fmt: skip
        return options
    put_hooks, dispatchers = [*options.hooks.put_hooks], [*options.hooks.dispatchers]
    if options.hooks.installed:
        put_hooks[:0] = _made(PUT_HOOKS, entries(PUT_HOOKS), root)
        dispatchers[:0] = _made(DISPATCHERS, entries(DISPATCHERS), root)
    for hook in put_hooks:
        require_put_hook(hook)
    for dispatcher in dispatchers:
        require_dispatcher(dispatcher)
    hooks = replace(options.hooks, put_hooks=put_hooks, dispatchers=dispatchers)
    return replace(options, hooks=hooks)


def installed_interceptor(components: StoreComponents) -> InstalledInterceptor | None:
    """Return the interceptor of this store's reads, ``None`` if no setting requests one.

    Raises:
        StoreConfigError: it cannot be created, two packages provide one, or none does.
    """
    if components.read_only:
        return None
    offered = {entry.name for entry in entries(INTERCEPTORS)}
    missing = [
        name for name in REQUESTING if getattr(components.config, name) and name not in offered
    ]
    if missing:
        raise StoreConfigError(
            f"{missing[0]} is set, but no installed package has an entry point of that name in"
            f" {INTERCEPTORS}"
        )
    requested = {
        entry.value: entry  # once, even if several settings request it
        for entry in entries(INTERCEPTORS)
        if getattr(components.config, entry.name, None)
    }
    found: list[InstalledInterceptor] = [*_made(INTERCEPTORS, requested.values(), components)]
    if len(found) > 1:
        raise StoreConfigError(f"expected one read interceptor, found {', '.join(requested)}")
    return found[0] if found else None


def _made(group: str, offered: Iterable[EntryPoint], given: object) -> Iterator[Any]:
    """Yield the objects that the entry points of ``group`` create for this store from ``given``.

    Raises:
        StoreConfigError: an entry point fails.
    """
    for entry in offered:
        try:
            made = load_whole(entry)(given)
        except Exception as exc:
            raise StoreConfigError(
                f"cannot create {entry.name!r} of {group} ({entry.value}): {exc!r:.300}"
            ) from exc
        if made is not None:
            yield made
