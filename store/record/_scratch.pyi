from typing import Self

class Scratch:
    def __new__(cls, max_body: int, max_total: int, *, is_held: bool = False) -> Self: ...
