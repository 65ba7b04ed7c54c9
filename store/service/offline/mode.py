"""The states of a store, and the steps between them: which backends it keeps, which one it reads.

From one backend alone over both, the one read or the other, to the other one alone: steps lead to
a neighbour only, in both directions; ``passing`` takes two with one comparison. Before a step
all obstacles are looked for; nothing is changed if there is one. A backend
that is no longer kept stays where it lies, with a line that says up to where it is whole: it is not
opened, and catches up from there when it is kept again.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cqstore.store.comparing.compared import Compared
from cqstore.store.comparing.verified_queues import KnownFile
from cqstore.store.errors import IllegalMessageError, RefusedStoreError, StoreError
from cqstore.store.journals.backend_state import read_backend_state, set_mode
from cqstore.store.journals.store_lock import StoreLock, locked_by
from cqstore.store.journals.store_mode import StoreMode, store_modes
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.backend_replica import NO_LIGHT
from cqstore.store.queue.backends import backend, unlike_others
from cqstore.store.sentences import some_of
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.service.layout.store_layout import StoreLayout, choose_backends
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.both_backends import compare_backends
from cqstore.store.service.offline.delay_levels import unlike_levels
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.recovering.recovery import RecoveryReport
from cqstore.store.settings.config import StoreConfig

__all__ = [
    "ModeChange", "Step", "StoreMode", "change_mode", "current_mode",
    "possible_steps", "set_mode", "store_modes",
]  # fmt: skip
_MAX_BACKENDS = 2
"""That a state keeps."""
_MAX_TOPICS = 5
"""Topics that a reason names."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step from the present state of a store to a neighbouring one, and what forbids it."""

    to: StoreMode
    reasons: list[str]
    """The obstacles, a sentence each; empty: it can be done."""

    @property
    def is_possible(self) -> bool:
        """Return whether there is no obstacle."""
        return not self.reasons


@dataclass(frozen=True, slots=True)
class ModeChange:
    """What one step to another state did."""

    before: StoreMode
    after: StoreMode
    lagging: dict[str, int] = field(default_factory=dict)
    """Backends that lag now, or are left behind: phy offset up to which each is whole."""
    detached: dict[str, str] = field(default_factory=dict)
    """Backends that failed while they caught up, and why."""
    recovery: RecoveryReport | None = None
    """With a backend that is kept anew: the opening that caught it up."""
    passed_over: int = 0
    """Queues that were not compared: they were known."""


def current_mode(layout: StoreLayout, config: StoreConfig) -> StoreMode:
    """Return the state that was set, else the one that disk and settings make.

    Raises:
        RefusedStoreError, StoreConfigError: as ``choose_backends``; or more backends than two are
            kept, between which no steps lead.
    """
    if layout.backend_state.mode is not None:
        return layout.backend_state.mode
    names = choose_backends(layout, config, None)
    if len(names) > _MAX_BACKENDS:
        raise RefusedStoreError(
            f"no state keeps the queues in {' and '.join(names)}: expected one of"
            f" {', '.join(store_modes())}",
            path=layout.paths.root,
        )
    return StoreMode.of(*names)


def possible_steps(
    root: Path, config: StoreConfig | None = None, *, progress: Progress = noop
) -> list[Step]:
    """Return the steps to the neighbours, each with its obstacles. Changes nothing.

    A step that another backend must be whole for compares both, the whole range.

    Raises:
        RefusedStoreError, CorruptionError, StoreIOError: there is no store that could be read.
    """
    layout, config = resolve_layout(root, config or StoreConfig(), read_only=True)
    now = current_mode(layout, config)
    look = _StepObstacles(layout, config, progress)
    return [Step(to, look.reasons(now, to)) for to in now.neighbours]


def change_mode(
    root: Path,
    to: StoreMode,
    config: StoreConfig | None = None,
    *,
    passing: bool = False,
    known: KnownFile | None = None,
    settled: Callable[[MessageStore], object] = noop,
    ready: Callable[[StorePaths], object] = noop,
    progress: Progress = noop,
) -> ModeChange:
    """Take one step, under the store's lock; nothing is changed if there is an obstacle.

    With ``passing`` a state that keeps two backends may be left for the one behind the neighbour
    that keeps them too: both steps need the same comparison. A backend that is kept from now on is
    caught up before this returns: from its line, or, if there is none of it yet, from all that the
    log has; ``settled`` is called with the store then, open to write. ``ready`` is called under the
    lock if there is no obstacle; if it raises, the step is not taken. ``known`` names
    queues that need no comparison: the caller answers for that.

    Raises:
        RefusedStoreError: it is not one step away, or there are obstacles: all of them are
            named.
        StoreLockedError: the store is open.
        StoreError: as for opening the store.
    """
    layout, config = resolve_layout(root, config or StoreConfig(), read_only=True)
    now = current_mode(layout, config)
    if to == now:
        return ModeChange(now, to, dict(layout.backend_state.lagging))
    _require_step(layout, now, to, now.reachable if passing else now.neighbours)
    lock = StoreLock(layout.paths)
    try:
        look = _StepObstacles(layout, config, progress, known)
        reasons = look.reasons(now, to, locked=True)
        if reasons:
            raise RefusedStoreError(
                f"cannot change the state from {now} to {to}: {'; '.join(reasons)}",
                path=layout.paths.root,
            )
        ready(layout.paths)
        set_mode(layout.paths, to, _lagging(layout, now, to, look.log_end))
    finally:
        lock.release()
    done = _finish(layout, config, now, to, settled, progress)
    return replace(done, passed_over=look.passed_over)


def _require_step(
    layout: StoreLayout, now: StoreMode, to: StoreMode, ways: Collection[StoreMode]
) -> None:
    """Refuse a step that leads elsewhere than to one of ``ways``.

    Raises:
        RefusedStoreError: it does.
    """
    if to not in ways:
        named = " or ".join(str(mode) for mode in ways)
        raise RefusedStoreError(
            f"cannot change the state from {now} to {to} in one step: expected {named}",
            path=layout.paths.root,
        )


def _lagging(layout: StoreLayout, now: StoreMode, to: StoreMode, log_end: int) -> dict[str, int]:
    """Return up to where backends are whole that lag, with those that go or come."""
    lagging = dict(layout.backend_state.lagging)
    for name in set(now.backends) - set(to.backends):
        lagging.setdefault(name, log_end)
    for name in set(to.backends) - set(now.backends):
        lagging.setdefault(name, 0)
    return lagging


def _finish(
    layout: StoreLayout,
    config: StoreConfig,
    now: StoreMode,
    to: StoreMode,
    settled: Callable[[MessageStore], object],
    progress: Progress,
) -> ModeChange:
    """Catch up a backend that is kept from now on, if there is one; return what the step did."""
    if not set(to.backends) - set(now.backends):
        return ModeChange(now, to, dict(read_backend_state(layout.paths).lagging))
    with MessageStore.open(
        layout.paths.root, config, housekeeping=False, progress=progress
    ) as store:
        failed = {name: str(exc) for name, exc in store.detached_backends().items()}
        report = store.report
        settled(store)
    return ModeChange(now, to, dict(read_backend_state(layout.paths).lagging), failed, report)


class _StepObstacles:
    """The obstacles to steps of one store, which must not change meanwhile."""

    def __init__(
        self,
        layout: StoreLayout,
        config: StoreConfig,
        progress: Progress,
        known: KnownFile | None = None,
    ) -> None:
        self._known = known
        self._layout, self._config, self._progress = layout, config, progress
        self._paths = layout.paths
        self.log_end = 0
        """Where the log ended when the store was looked at."""
        self.passed_over = 0
        """Queues that were known."""

    def reasons(self, now: StoreMode, to: StoreMode, *, locked: bool = False) -> list[str]:
        """Return all obstacles to the step; ``locked``: the caller has the store's lock."""
        found = [
            f"the store can only be opened read-only: {reason}" for reason in self._layout.refusals
        ]
        holder = 0 if locked else locked_by(self._paths)
        if holder:
            return [*found, f"process {holder} has the store open"]
        if exists(self._paths.replacing) or exists(self._paths.rebuilding):
            found.append("a rebuild of queues is not finished: run cqstore recover")
        if not self._layout.has_log:
            found.append("the store has no commit log to compare with or to catch up from")
        try:
            with MessageStore.open(self._paths.root, self._config, read_only=True) as store:
                self.log_end = max(store.max_phy_offset(), 0)
                found += self._of_open_store(store, now, to, locked=locked)
        except StoreError as exc:
            found.append(f"cannot read the store: {exc}")
        return found

    def _of_open_store(
        self, store: MessageStore, now: StoreMode, to: StoreMode, *, locked: bool
    ) -> list[str]:
        """Return the obstacles that the store itself shows, opened read-only."""
        if store.report.needed:
            return ["the store was not closed cleanly and needs recovery: run cqstore recover"]
        found: list[str] = []
        for name in sorted(set(to.backends) - set(now.backends)):
            found += self._not_for(store, name)
            begin = self._layout.backend_state.lagging.get(name, 0)
            levels = unlike_levels(store, self._config.message_delay_level, begin)
            found += [each.sentence() for each in levels]
        if len(now.backends) > 1:
            found += self._not_whole(store, to.backends, locked=locked)
        return found

    def _not_for(self, store: MessageStore, name: str) -> list[str]:
        """Return why backend ``name`` could not hold the queues that are there."""
        found: list[str] = []
        batches = unlike_others(self._paths)
        if batches is not None:
            found.append(f"BatchCQ queues exist only as files ({batches})")
        kind = backend(name)(components_of(store).queues.context)  # not loaded: it touches no file
        unfit: list[str] = []
        count = 0
        for topic in store.topics():
            try:
                kind.check_topic(topic)
            except IllegalMessageError as exc:
                count += 1
                if count <= _MAX_TOPICS:
                    unfit.append(str(exc))
        if count:
            found.append(f"backend {name} cannot hold {count} topics: {some_of(unfit, count)}")
        return found

    def _not_whole(self, store: MessageStore, kept: Sequence[str], *, locked: bool) -> list[str]:
        """Return why the first of these could not be the one that is read, or the only one."""
        backend_state, name = self._layout.backend_state, kept[0]
        if name in backend_state.lagging:
            return [
                f"the {name} queues lag: complete only up to phy offset"
                f" {backend_state.lagging[name]}; open the store for writing (cqstore recover)"
            ]
        given = backend_state.covers.get(name)
        if given == NO_LIGHT and len(kept) == 1:
            return [f"the {name} queues have no light queues: only the other backend has them"]
        if given not in {None, NO_LIGHT}:
            return [f"the {name} queues hold only the topics {given!r}"]
        if len(components_of(store).queues.backends()) == 1:
            if components_of(store).queues.backends()[0].name == name:
                return []
            return [f"there are no {name} queues yet: open the store for writing (cqstore recover)"]
        found = compare_backends(store, locked=locked, known=self._known, progress=self._progress)
        self.passed_over = found.passed_over
        return _sentences(found, name)


def _sentences(compared: Compared, name: str) -> list[str]:
    """Return why a comparison forbids to read backend ``name`` alone."""
    found: list[str] = []
    if lacking := compared.missing_units(name):
        found.append(
            f"{lacking} units of the {name} queues are missing or different"
            " (cqstore mode --verify lists them)"
        )
    if compared.skipped:
        found.append(f"{len(compared.skipped)} BatchCQ queues exist only as files")
    return found
