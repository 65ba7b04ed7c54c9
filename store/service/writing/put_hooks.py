"""Put hooks: a program's checks before a message is put, in front of ``Putter``.

Without hooks this layer does not exist. Messages that hooks accept are put like any others, with
the checks and compiled code.

Source: RocketMQ ``PutMessageHook``, ``DefaultMessageStore.putMessageHookList``.
"""

from collections.abc import Sequence
from typing import Protocol

from cqstore.store.concurrency.future import Promised, Soon, at_once
from cqstore.store.errors import IllegalMessageError, PutHookError, StoreConfigError, StoreError
from cqstore.store.record.client_batch import decode_client_batch, encode_client_batch
from cqstore.store.record.message import Message
from cqstore.store.record.message_check import fault_of, illegal, require_message, require_messages
from cqstore.store.record.message_copy import copy_message
from cqstore.store.service.results import PutMessageResult, PutMessageStatus
from cqstore.store.service.runtime.meters import PutMeter
from cqstore.store.service.writing.putter import Puts, status_of

_STORED = frozenset({
    PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
})  # fmt: skip
_CARRIED = ("body", "flag", "properties")
"""The fields that a client batch has per message."""
_OF_BATCH = (
    "topic", "queue_id", "sys_flag", "born_timestamp", "born_host", "store_host",
    "reconsume_times", "prepared_transaction_offset",
)  # fmt: skip


class PutMessageHook(Protocol):
    """Hook that is called before each put, in the putting thread; no store lock is held.

    Source: RocketMQ ``PutMessageHook``.
    """

    @property
    def hook_name(self) -> str:
        """Return the name of the hook in errors."""

    def execute_before_put_message(self, message: Message) -> PutMessageResult | None:
        """Return ``None`` to accept the message, or a result with the status and reason to refuse.

        ``message`` is a copy. The next hook and the put get it with the changes of this hook. If
        the hook raises an exception the put raises ``PutHookError``, and nothing is put. The
        messages of a client batch are passed one by one: only their body, flag and properties may
        change, and the batch is refused if one message is refused.
        """


def require_put_hook(given: object) -> None:
    """Refuse an object that is not a ``PutMessageHook``.

    Raises:
        StoreConfigError: it has no name, or its method cannot be called.
    """
    called = callable(getattr(given, "execute_before_put_message", None))
    if not (called and isinstance(getattr(given, "hook_name", None), str)):
        raise StoreConfigError(
            f"invalid put hook {given!r:.60}: it lacks hook_name or execute_before_put_message()"
        )


class HookedPuts:
    """Calls ``hooks``, in order, then puts through ``puts``. Any number of threads may call."""

    def __init__(self, puts: Puts, hooks: Sequence[PutMessageHook], meter: PutMeter) -> None:
        """``meter`` counts the messages that hooks refuse."""
        self._puts = puts
        self._hooks = [(each.hook_name, each.execute_before_put_message) for each in hooks]
        self._meter = meter

    def put(self, message: Message, *, wait: bool = True) -> PutMessageResult:
        """Put one message, see ``Putter.put``.

        Raises:
            PutHookError: a hook failed; nothing was put.
        """
        passed = self._passed(message)
        if isinstance(passed, PutMessageResult):
            return passed
        return self._puts.put(passed, wait=wait)

    def put_later(
        self, message: Message, promised: Promised[PutMessageResult], soon: Soon = at_once
    ) -> None:
        """Put one message, see ``Putter.put_later``.

        Raises:
            PutHookError: a hook failed; nothing was put, and ``promised`` is not completed.
        """
        passed = self._passed(message)
        if isinstance(passed, PutMessageResult):
            promised.set_result(passed)
        else:
            self._puts.put_later(passed, promised, soon)

    def put_list(self, messages: Sequence[Message]) -> list[PutMessageResult]:
        """Call the hooks with each message, then put the accepted ones under one lock.

        Raises:
            PutHookError: a hook failed; none was put.
        """
        require_messages(messages)
        outcomes = [self._passed(message) for message in messages]
        passed = [each for each in outcomes if not isinstance(each, PutMessageResult)]
        done = iter(self._puts.put_list(passed) if passed else ())
        return [each if isinstance(each, PutMessageResult) else next(done) for each in outcomes]

    def put_client_batch(self, batch: Message) -> list[PutMessageResult]:
        """Call the hooks with each message of the batch, then put it completely.

        Raises:
            PutHookError: a hook failed; nothing was put.
        """
        require_message(batch, "batch")
        try:
            batch = copy_message(batch)
            if (fault := fault_of(batch)) is not None:
                raise IllegalMessageError(fault)  # noqa: TRY301 - as what decoding raises
            messages = decode_client_batch(batch)
            before = [copy_message(each) for each in messages]
            for message in messages:
                if (refused := self._run_hooks(message, message, in_batch=True)) is not None:
                    return [refused]
            if any(map(_is_changed, messages, before)):
                batch.body = encode_client_batch(messages)
        except IllegalMessageError as exc:
            return [self._refused(exc)]
        except (TypeError, AttributeError) as exc:
            return [self._refused(illegal(batch, exc))]
        return self._puts.put_client_batch(batch)

    def _passed(self, message: Message) -> Message | PutMessageResult:
        """Return a copy of ``message`` with the changes of the hooks, or the refusal of a hook."""
        require_message(message)
        try:
            own = copy_message(message)
        except (TypeError, AttributeError) as exc:
            return self._refused(illegal(message, exc))
        return self._run_hooks(own, message) or own

    def _run_hooks(
        self, message: Message, given: Message, *, in_batch: bool = False
    ) -> PutMessageResult | None:
        """Call all hooks; ``given`` is the message or batch of the caller."""
        self._meter.count_hooked()
        for name, execute in self._hooks:
            before = copy_message(message) if in_batch else message
            try:
                result = execute(message)
            except Exception as exc:
                if (fault := fault_of(copy_message(given))) is not None and not in_batch:
                    return self._refused(IllegalMessageError(fault))
                raise self._failed(f"the put hook {name!r} failed: {exc!r:.300}") from exc
            if result is not None:
                return self._checked(name, result)
            for field in _OF_BATCH if in_batch else ():
                if getattr(message, field) != getattr(before, field):
                    raise self._failed(
                        f"the put hook {name!r} changed {field} of a message of a client batch:"
                        " it must be that of the batch"
                    )
        return None

    def _checked(self, name: str, result: PutMessageResult) -> PutMessageResult:
        """Return the refusal of a hook, with a reason."""
        if not isinstance(result, PutMessageResult):
            raise self._failed(
                f"the put hook {name!r} returned {result!r:.60}, not a PutMessageResult or None"
            )
        if result.status in _STORED or result.appended is not None:
            raise self._failed(
                f"the put hook {name!r} returned {result.status}: that would acknowledge a message"
                " that is not stored"
            )
        self._meter.count_hook_refusal()
        self._meter.not_ok(result.status)
        return result._replace(reason=result.reason or f"the put hook {name!r} refused the message")

    def _failed(self, reason: str) -> PutHookError:
        self._meter.count_hook_failure()
        return PutHookError(reason)

    def _refused(self, exc: StoreError) -> PutMessageResult:
        status = status_of(exc)
        self._meter.not_ok(status)
        return PutMessageResult(status, reason=str(exc))


def _is_changed(message: Message, before: Message) -> bool:
    return any(getattr(message, field) != getattr(before, field) for field in _CARRIED)
