"""What a store logs, from any of its threads."""

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def logged(name: str = "cqstore.store") -> Iterator[io.StringIO]:
    """Collect what the logger of a package is given, in a handler of its own.

    That of ``caplog`` has a lock that an interrupt within the test may leave taken; lines of other
    threads are lost then.
    """
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield text
    finally:
        logger.removeHandler(handler)
