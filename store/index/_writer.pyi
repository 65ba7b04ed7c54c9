from store.index._batch import KeyColumns

class UnreadSlotsError(Exception):
    args: tuple[int, int, int, int]

class KeyWriter:
    def __init__(self, slots: int, entries: int) -> None: ...
    def write(
        self, fd: int, keys: KeyColumns, start: int, end: int, first: int,
        begin_timestamp: int, first_time_diff: int, header: bytes,
    ) -> int: ...  # fmt: skip
    def has_heads(self, first: int) -> bool: ...
    def forget_heads(self) -> None: ...
