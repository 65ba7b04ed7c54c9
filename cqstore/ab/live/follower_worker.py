"""``python -m cqstore.ab.live.follower_worker PARENT``: a side that follows a running master.

Requests are answered in the main thread, the log is followed in another one. See ``side_worker``.
"""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from cqstore.ab.measuring import measures
from cqstore.ab.sides.side_worker import SideWorker, main
from cqstore.cli.options import note
from cqstore.replication.follow.follower import Follower
from cqstore.replication.follow.log_receiver import READ_BYTES, LogReceiver
from cqstore.replication.wire import Piece
from cqstore.store.errors import StoreError
from cqstore.store.log.log_files import log_file_paths
from cqstore.store.paths import StorePaths
from cqstore.store.service.opening.components import components_of


class Usage(BaseModel):
    """What a side has used and received since its start."""

    records: int
    begin: int
    """First phy offset of the log; negative: none yet."""
    end: int
    newest_ms: int
    """Store time of the newest record, 0: none."""
    now_ms: int
    cpu_seconds: float
    """Of all threads but the one that answers requests."""
    read_bytes: int
    written_bytes: int
    backend_written: dict[str, int]
    pss_bytes: int
    disk_bytes: int


class FollowerWorker(SideWorker):
    """Handler of the requests to a side that follows a master."""

    def __init__(self) -> None:
        super().__init__()
        self._failure: BaseException | None = None
        self._ready = threading.Event()

    def follow(self, host: str, port: int, name: str) -> None:
        """Open the store and begin to follow; ``name`` is for messages about the connection."""
        self._side.open()
        self._follower = Follower(
            self._side.store, host, port, on_event=lambda text: note(f"{name}: {text}")
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()

    def usage(self) -> dict[str, Any]:
        """Return the ``Usage`` of this side.

        Raises:
            StoreError: the side can follow no more.
        """
        if self._failure is not None:
            raise self._failure
        store = self._side.store
        log = components_of(store).log
        pss, disk = self.sample()
        read, written = measures.input_output()
        return Usage(
            records=log.appended_records, begin=log.min_phy_offset(), end=log.max_phy_offset(),
            newest_ms=log.followed_timestamp, now_ms=int(time.time() * 1000),
            cpu_seconds=time.process_time() - time.thread_time(),
            read_bytes=read, written_bytes=written, backend_written=dict(self._side.written()),
            pss_bytes=pss, disk_bytes=disk,
        ).model_dump()  # fmt: skip

    def stop_following(self) -> int:
        """Stop after the append in progress; return the end of the log.

        Raises:
            StoreError: the side failed before.
        """
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return components_of(self._side.store).log.max_phy_offset()

    def catch_up(self, root: str, end: int) -> None:
        """Append the bytes up to ``end`` from the log of another side, whose root is ``root``.

        Raises:
            StoreError: the log of the other side does not continue this log.
        """
        receiver = LogReceiver(self._side.store)
        at, folder = receiver.request, StorePaths(Path(root)).commit_log
        files = log_file_paths([folder])
        for file, following in zip(files, [*files[1:], None], strict=True):
            stop = end if following is None else min(int(following.name), end)
            with file.open("rb") as data:
                data.seek(max(at - int(file.name), 0))
                while int(file.name) <= at < stop:
                    part = data.read(min(READ_BYTES, stop - at))
                    if not part:
                        break
                    receiver.receive([Piece(at, part)])
                    at += len(part)
        if at != end:
            raise StoreError(f"cannot append the log of another side: it ends at {at}, not {end}")

    def _run(self) -> None:
        try:
            asyncio.run(self._follow())
        except asyncio.CancelledError:
            return
        except BaseException as exc:  # noqa: BLE001 - the next request reports it
            self._failure = exc
        finally:
            self._ready.set()

    async def _follow(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._loop, self._task = asyncio.get_running_loop(), task
        self._ready.set()
        await self._follower.run()


if __name__ == "__main__":
    main(FollowerWorker())
