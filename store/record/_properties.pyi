from collections.abc import Sequence
from typing import Generic, TypeVar

_T = TypeVar("_T")

def java_hash(text: str) -> int: ...

class PropertyNames(Generic[_T]):
    def __init__(self, names: Sequence[str], made: type[_T]) -> None: ...
    def decode(self, data: bytes) -> _T: ...
