"""Queue extension files: where a unit's tags code is an address, the code lies there.

Read, never written: a plain tags code is as good in a queue that has such files.

Source: RocketMQ ``ConsumeQueueExt``.
"""

import os
from pathlib import Path

from cq_file.descriptor_cache import DescriptorCache
from cq_file.layout import EXT_ADDRESS_BASE, EXT_ADDRESS_MAX, EXT_UNIT_HEAD, file_name
from store.errors import StoreIOError, os_errors


def is_address(tags_code: int) -> bool:
    """Return whether a unit's tags code is an address of its extension."""
    return tags_code <= EXT_ADDRESS_MAX


class ConsumeQueueExt:
    """The extension files of one queue."""

    def __init__(self, folder: Path, cache: DescriptorCache, file_bytes: int) -> None:
        self._folder = folder
        self._cache = cache
        self._file_bytes = file_bytes

    def tags_code(self, address: int) -> int | None:
        """Return the tags code at ``address``, ``None`` if no unit lies there."""
        offset = address - EXT_ADDRESS_BASE
        start = offset - offset % self._file_bytes
        path = self._folder / file_name(start)
        if not path.exists():
            return None
        try:
            with os_errors("read a queue extension file", path):
                descriptor = self._cache.get(str(path))
                data = os.pread(descriptor.fd, EXT_UNIT_HEAD.size, offset - start)
        except StoreIOError:
            return None
        if len(data) < EXT_UNIT_HEAD.size:
            return None
        head = EXT_UNIT_HEAD.unpack_from(data)
        whole = head.size == EXT_UNIT_HEAD.size + head.bit_map_size
        return head.tags_code if whole and head.bit_map_size >= 0 else None
