from collections.abc import Callable

from cqstore.store.service.dispatching.dispatch import Dispatcher
from cqstore.store.service.runtime.running_state import RunningState

class Ready:
    def __init__(
        self,
        state: RunningState,
        dispatcher: Dispatcher,
        nothing: object,
        otherwise: Callable[[], None],
    ) -> None: ...
    def __call__(self) -> None: ...
