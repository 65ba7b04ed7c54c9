"""The modes of a store, and the steps between them: the backends in use, and the one read.

From one backend alone over both, with either one read, to the other one alone: each step leads to a
neighbour, in both directions; ``passing`` does two steps with one comparison. Before a step all
obstacles are searched; if there is one, nothing is changed. A backend that is no longer used stays
in place, with a line of the offset up to which it is complete: it is not opened, and catches up
from there when it is used again.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cqstore.store.comparing.compared import Compared
from cqstore.store.comparing.verified_queues import KnownFile
from cqstore.store.errors import IllegalMessageError, RefusedStoreError, StoreError
from cqstore.store.files import file_identity
from cqstore.store.journals.backend_state import note_unlike, read_backend_state, set_mode
from cqstore.store.journals.store_lock import StoreLock, lock_stamp, locked_by
from cqstore.store.journals.store_mode import StoreMode, store_modes
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.backend_replica import NO_LIGHT
from cqstore.store.queue.backends import backend, only_as_files
from cqstore.store.queue.topic_choice import is_whole, left_topics
from cqstore.store.sentences import some_of
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.service.layout.store_layout import StoreLayout, choose_backends
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.both_backends import (
    BackendsAtRest,
    backends_at_rest,
    compare_backends,
)
from cqstore.store.service.offline.delay_levels import unlike_levels
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.recovering.recovery_report import RecoveryReport
from cqstore.store.settings.config import StoreConfig

__all__ = [
    "ModeChange", "Step", "StoreMode", "change_mode", "current_mode",
    "possible_steps", "set_mode", "store_modes",
]  # fmt: skip
_MAX_BACKENDS = 2
"""Maximum number of backends in a mode."""
_MAX_TOPICS = 5
"""Maximum number of topics in a reason."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step from the present mode of a store to a neighbouring one, with its obstacles."""

    to: StoreMode
    reasons: list[str]
    """The obstacles, a sentence each; empty: the step is possible."""

    @property
    def is_possible(self) -> bool:
        """Return whether there is no obstacle."""
        return not self.reasons


@dataclass(frozen=True, slots=True)
class ModeChange:
    """The result of one step to another mode."""

    before: StoreMode
    after: StoreMode
    lagging: dict[str, int] = field(default_factory=dict)
    """Backends that lag now, or are left behind: phy offset up to which each is complete."""
    detached: dict[str, str] = field(default_factory=dict)
    """Backends that failed while catching up, and their errors."""
    recovery: RecoveryReport | None = None
    """If a backend was added: the opening that caught it up."""
    passed_over: int = 0
    """Queues that were not compared because they were known."""
    closed: "ClosedStore | None" = None
    """If a backend was added: what the next step need not open the store for."""


@dataclass(frozen=True, slots=True)
class ClosedStore:
    """Both backends of a store that a step has opened for writing, and closed cleanly."""

    backends: BackendsAtRest
    mode: StoreMode
    stamp: tuple[object, ...]
    """``_open_stamp`` of this opening."""

    def is_unchanged(self, paths: StorePaths, now: StoreMode) -> bool:
        """Return whether no program has opened the store for writing since.

        The caller holds the store's lock.
        """
        is_same = self.mode == now and self.stamp == _open_stamp(paths)
        return is_same and not exists(paths.abort)


def _open_stamp(paths: StorePaths) -> tuple[object, ...]:
    """Return a value that changes when RocketMQ or cqstore opens the store for writing."""
    return lock_stamp(paths), file_identity(paths.abort_backup)


def current_mode(layout: StoreLayout, config: StoreConfig) -> StoreMode:
    """Return the mode that was set, otherwise the one from disk and settings.

    Raises:
        RefusedStoreError, StoreConfigError: as for ``choose_backends``; or more than two backends
            are in use, for which there are no steps.
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

    If a step requires another backend to be complete, both are compared over the whole range.

    Raises:
        RefusedStoreError, CorruptionError, StoreIOError: there is no store, or it cannot be read.
    """
    config = (config or StoreConfig()).to_move_queues()
    layout, config = resolve_layout(root, config, read_only=True)
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
    after: ModeChange | None = None,
) -> ModeChange:
    """Take one step, under the store's lock; the mode is not changed if there is an obstacle.

    If a comparison finds the backends different, they are no longer recorded as alike: the next
    opening compares them, and fills what is missing.

    With ``passing``, a mode with two backends may be left for the one after the neighbour with the
    same two: both steps need the same comparison. A backend that is added is caught up before this
    returns: from its line, or, if it has no units yet, from the whole log; ``settled`` is then
    called with the store, open for writing. ``ready`` is called under the lock if there is no
    obstacle; if it raises an exception, the step is not taken. ``known`` names queues that need no
    comparison: the caller is responsible for that. ``after``: the step that the caller has taken
    just before.

    Raises:
        RefusedStoreError: it is not one step away, or there are obstacles: the error lists all of
            them.
        StoreLockedError: the store is open.
        StoreError: as for opening the store.
    """
    config = (config or StoreConfig()).to_move_queues()
    layout, config = resolve_layout(root, config, read_only=True)
    now = current_mode(layout, config)
    if to == now:
        return ModeChange(now, to, dict(layout.backend_state.lagging))
    _require_step(layout, now, to, now.reachable if passing else now.neighbours)
    with StoreLock(layout.paths):
        closed = None if after is None else after.closed
        look = _StepObstacles(layout, config, progress, known, closed)
        look.refuse(now, to)
        ready(layout.paths)
        set_mode(layout.paths, to, _lagging(layout, now, to, look.log_end))
    done = _finish(layout, config, now, to, settled, progress)
    return replace(done, passed_over=look.passed_over)


def _require_step(
    layout: StoreLayout, now: StoreMode, to: StoreMode, ways: Collection[StoreMode]
) -> None:
    """Refuse a step to a mode that is not in ``ways``.

    Raises:
        RefusedStoreError: ``to`` is not in ``ways``.
    """
    if to not in ways:
        named = " or ".join(str(mode) for mode in ways)
        raise RefusedStoreError(
            f"cannot change the state from {now} to {to} in one step: expected {named}",
            path=layout.paths.root,
        )


def _lagging(layout: StoreLayout, now: StoreMode, to: StoreMode, log_end: int) -> dict[str, int]:
    """Return the complete parts of lagging backends, including removed and added ones."""
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
    """Catch up a backend that is added, if there is one; return the result of the step."""
    if not set(to.backends) - set(now.backends):
        return ModeChange(now, to, dict(read_backend_state(layout.paths).lagging))
    with MessageStore.open(
        layout.paths.root, config, housekeeping=False, progress=progress
    ) as store:
        failed = {name: str(exc) for name, exc in store.detached_backends().items()}
        report, closed = store.report, None
        settled(store)
        if not (failed or report.queues_damaged) and (both := backends_at_rest(store)) is not None:
            closed = ClosedStore(both, to, _open_stamp(layout.paths))
    return ModeChange(
        now, to, dict(read_backend_state(layout.paths).lagging), failed, report, closed=closed
    )


class _StepObstacles:
    """The obstacles to steps of one store, which must not change meanwhile."""

    def __init__(
        self,
        layout: StoreLayout,
        config: StoreConfig,
        progress: Progress,
        known: KnownFile | None = None,
        closed: ClosedStore | None = None,
    ) -> None:
        self._known, self._closed = known, closed
        self._layout, self._config, self._progress = layout, config, progress
        self._paths = layout.paths
        self.log_end = 0
        """End of the log when the store was inspected."""
        self.passed_over = 0
        """Queues that were skipped as known."""
        self.has_differences = False
        """Whether the backends were compared, and differ."""

    def refuse(self, now: StoreMode, to: StoreMode) -> None:
        """Refuse the step if there is an obstacle; the caller holds the store's lock.

        Raises:
            RefusedStoreError: there are obstacles.
        """
        reasons = self.reasons(now, to, locked=True)
        if not reasons:
            return
        if self.has_differences and self._layout.backend_state.alike:
            note_unlike(self._layout.paths)
        raise RefusedStoreError(
            f"cannot change the state from {now} to {to}: {'; '.join(reasons)}",
            path=self._layout.paths.root,
        )

    def reasons(self, now: StoreMode, to: StoreMode, *, locked: bool = False) -> list[str]:
        """Return all obstacles to the step; ``locked``: the caller holds the store's lock."""
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
        closed = self._closed if locked and {*to.backends} <= {*now.backends} else None
        if closed is not None and closed.is_unchanged(self._paths, now):
            self.log_end = closed.backends.log_end
            return found + (
                self._of_state(to.backends)
                or self._differing(closed.backends.compare(self._known, self._progress), to)
            )
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
        """Return the obstacles found in the store itself, opened read-only."""
        report, is_kept = store.report, bool(self._layout.log_writer)
        if report.is_incomplete or (report.needed and not is_kept):
            way = self._layout.how_to_recover
            return [f"the store was not closed cleanly and needs recovery: {way}"]
        found: list[str] = []
        for name in sorted(set(to.backends) - set(now.backends)):
            found += self._not_for(store, name)
            begin = self._layout.backend_state.lagging.get(name, 0)
            levels = unlike_levels(store, self._config.message_delay_level, begin)
            found += [each.sentence() for each in levels]
        if len(now.backends) > 1:
            found += self._of_state(to.backends) or self._not_whole(store, to, locked=locked)
        return found

    def _not_for(self, store: MessageStore, name: str) -> list[str]:
        """Return the reasons why backend ``name`` does not support the existing queues."""
        found: list[str] = []
        left = left_topics(self._layout.backend_state.choice)
        if (refusal := only_as_files(self._paths, left=left)) is not None:
            found.append(refusal.reason)
        kind = backend(name)(components_of(store).queues.context)  # not loaded: it accesses no file
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

    def _of_state(self, kept: Sequence[str]) -> list[str]:
        """Return the reasons in the store's record against reading the first of these backends."""
        backend_state, name = self._layout.backend_state, kept[0]
        if name in backend_state.lagging:
            return [
                f"the {name} queues lag: complete only up to phy offset"
                f" {backend_state.lagging[name]}; open the store for writing (cqstore recover)"
            ]
        given = backend_state.covers.get(name)
        if given == NO_LIGHT and len(kept) == 1:
            return [f"the {name} queues have no light queues: only the other backend has them"]
        if given != NO_LIGHT and not is_whole(backend_state.choice, name, given):
            return [f"the {name} queues hold only the topics {given!r}"]
        return []

    def _not_whole(self, store: MessageStore, to: StoreMode, *, locked: bool) -> list[str]:
        """Return the reasons why the first backend of ``to`` cannot be the one that is read."""
        name = to.backends[0]
        if len(components_of(store).queues.backends()) == 1:
            if components_of(store).queues.backends()[0].name == name:
                return []
            return [f"there are no {name} queues yet: open the store for writing (cqstore recover)"]
        found = compare_backends(store, locked=locked, known=self._known, progress=self._progress)
        return self._differing(found, to)

    def _differing(self, found: Compared, to: StoreMode) -> list[str]:
        self.passed_over = found.passed_over
        sentences = _sentences(found, to.backends[0])
        self.has_differences = bool(sentences)
        return sentences


def _sentences(compared: Compared, name: str) -> list[str]:
    """Return the reasons of a comparison against reading backend ``name`` alone."""
    found: list[str] = []
    if lacking := compared.missing_units(name):
        found.append(
            f"{lacking} units of the {name} queues are missing or different"
            " (cqstore mode --verify lists them)"
        )
    if compared.skipped:
        found.append(f"{len(compared.skipped)} BatchCQ queues exist only as files")
    return found
