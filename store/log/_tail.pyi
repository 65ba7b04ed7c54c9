from cqstore.store.log.log_map import LogMap
from cqstore.store.log.mapped_file import MappedFile

class FilePositions:
    file_from_offset: int
    wrote_position: int
    heap: bytearray | None
    mapped: LogMap | None

class FilesByStart:
    file_size: int
    by_start: dict[int, MappedFile]

class LogTail:
    end: int
    appended_records: int
    current: MappedFile | None
    prepared: MappedFile | None
