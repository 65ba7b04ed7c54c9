from cqstore.store.files import Descriptor

class FileMap:
    def __init__(self, fd: int, size: int, owner: Descriptor | None = None) -> None: ...
