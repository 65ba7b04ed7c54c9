"""StoreShutdown: closes an open store; the next call continues an interrupted close."""

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.service.opening.components import StoreComponents


class StoreShutdown:
    """The close of one store. Any thread; one at a time."""

    def __init__(self, components: StoreComponents) -> None:
        self._components = components
        self.lock = CheckedLock("a close")
        self.ended = False
        """The threads have ended, and puts are no longer possible."""
        self._all_flushed = self._released = False

    @property
    def is_done(self) -> bool:
        """Return whether the store has been closed completely."""
        return self.ended and self._released

    def run(self) -> None:
        """Flush everything and release every component, see ``MessageStore.close``."""
        with self.lock.entry():
            if not self.is_done:
                self._close()

    def _close(self) -> None:
        """End the threads, then flush and release; skip steps that an earlier call finished."""
        components, state = self._components, self._components.state
        failed_before = state.failure is not None
        try:
            with state.failing():
                components.stop()
                components.dispatcher.fail_if_interrupted()
                with components.pending.owner.entry(), components.pending.lock:
                    components.pending.appending.fail_if_interrupted()
                    state.close()
                self.ended = True
        finally:
            if not self._released:
                with components.clean.lock.entry():  # a running deletion completes
                    self._release()
        if state.failure is not None and not failed_before:
            raise state.failure

    def _release(self) -> None:
        """Flush everything, unless the store has failed, and release the components."""
        components, state = self._components, self._components.state
        try:
            with state.failing():
                if not (components.read_only or state.failure or self._all_flushed):
                    components.flush_all()
                    self._all_flushed = True
        finally:
            components.release(flushed=self._all_flushed)  # an interrupt may have happened before
            self._released = True
