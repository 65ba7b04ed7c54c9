from typing import Self

from cqstore.store.index._batch import KeyColumns

class UnreadSlotsError(Exception):
    args: tuple[int, int, int, int]

class KeyWriter:
    def __new__(cls, slots: int, entries: int) -> Self: ...
    def write(
        self, fd: int, keys: KeyColumns, start: int, end: int, first: int,
        begin_timestamp: int, first_time_diff: int, header: bytes,
    ) -> int: ...  # fmt: skip
    def has_heads(self, first: int) -> bool: ...
    def forget_heads(self) -> None: ...
