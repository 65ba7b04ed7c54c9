"""Java's ``String.hashCode`` by Python's arithmetic: what the core's is compared with."""

from array import array
from operator import mul

_BITS = 1 << 32
_SIGN = 1 << 31
_KNOWN = 512
_POWERS = tuple(pow(31, exponent, _BITS) for exponent in range(_KNOWN - 1, -1, -1))
_SWAP = array("H", b"\x01\x00")[0] != 1


def java_hash(text: str) -> int:
    """Return the hash of ``text`` over its UTF-16 code units, a signed 32-bit number."""
    units: bytes | array[int]
    if text.isascii():
        units = text.encode()
    else:
        units = array("H", text.encode("utf-16-le", "surrogatepass"))
        if _SWAP:
            units.byteswap()
    value = 0
    for start in range(0, len(units), _KNOWN):
        part = units[start : start + _KNOWN]
        shift = pow(31, len(part), _BITS) if start else 0
        value = (value * shift + sum(map(mul, part, _POWERS[_KNOWN - len(part) :]))) % _BITS
    return value - _BITS if value >= _SIGN else value
