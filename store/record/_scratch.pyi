from typing import Self

class Scratch:
    def __new__(cls, most_body: int, most_total: int, *, is_held: bool = False) -> Self: ...
