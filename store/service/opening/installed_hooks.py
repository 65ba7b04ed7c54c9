"""Hooks that installed packages bring, found by entry point, before those of the program.

An entry of ``cqstore.put_hooks`` or ``cqstore.dispatchers`` is a function that takes the root of a
store, and returns a ``PutMessageHook`` or a ``CommitLogDispatcher``, or ``None`` where that store
has none. They come in the order of their names.

An entry of ``cqstore.interceptors`` is a function that takes the ``StoreComponents`` of a store
that is opened to write, and returns an ``InstalledInterceptor`` or ``None``. Its name is the field
of ``StoreConfig`` that asks for it: it is imported only where that field is set.

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
"""Settings that promise an interceptor: without one the store is refused, not opened without."""


def with_installed(root: Path, options: OpenOptions) -> OpenOptions:
    """Return ``options`` with all hooks that the store in ``root`` is to have.

    Raises:
        StoreConfigError: a hook is none, or a package's cannot be made; or the store is opened to
            read, and the program has hooks for it, which nothing would call.
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
    """Return what intercepts reads of this store, ``None`` where no setting asks for it.

    Raises:
        StoreConfigError: it cannot be made, two packages bring one, or none does.
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
        entry.value: entry  # once, though several settings ask for it
        for entry in entries(INTERCEPTORS)
        if getattr(components.config, entry.name, None)
    }
    found: list[InstalledInterceptor] = [*_made(INTERCEPTORS, requested.values(), components)]
    if len(found) > 1:
        raise StoreConfigError(f"expected one read interceptor, found {', '.join(requested)}")
    return found[0] if found else None


def _made(group: str, offered: Iterable[EntryPoint], given: object) -> Iterator[Any]:
    """Yield what the entry points of ``group`` make for this store out of ``given``.

    Raises:
        StoreConfigError: one fails.
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
