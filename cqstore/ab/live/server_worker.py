"""``python -m cqstore.ab.live.server_worker PARENT``: a side that serves clients.

Requests of the parent are answered in the main thread, clients in another one. See ``side_worker``.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from pydantic import BaseModel, NonNegativeFloat, NonNegativeInt

from cqstore.ab.measuring import measures
from cqstore.ab.sides.side_worker import SideWorker, main
from cqstore.ab.stores.store_survey import shape_of
from cqstore.serve.codes import RequestCode, ResponseCode
from cqstore.serve.server import Server, ServerFigures
from cqstore.serve.store_writer import WriteSettings
from cqstore.serve.writable_server import serving_writable
from cqstore.store.errors import StoreError

_SENDS = {
    code.name
    for code in (
        RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
    )
}  # fmt: skip
_STORED = {-1, ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT}
"""Responses to messages that are stored; -1: a one-way message has no response."""
_END_SECONDS = 10.0
_LOOK_SECONDS = 0.005


class ServedLoad(BaseModel):
    """What clients did at the server of a side in one run, and what the side used for it."""

    connections: NonNegativeInt
    messages_in: NonNegativeInt
    """Messages of clients that were put."""
    messages_out: NonNegativeInt
    """Messages that pulls were answered with."""
    refused: NonNegativeInt
    """Sends that were answered with an error."""
    cpu_seconds: NonNegativeFloat
    """Of all threads until the store was closed, without the requests of the parent."""
    read_bytes: NonNegativeInt
    written_bytes: NonNegativeInt
    backend_written: dict[str, NonNegativeInt]
    pss_bytes: NonNegativeInt
    """Maximum of the samples."""
    disk_bytes: NonNegativeInt
    """Disk space of the queues after the run; before it there are none."""

    @property
    def messages(self) -> int:
        """Return the number of messages that clients sent and received."""
        return self.messages_in + self.messages_out


class ServerWorker(SideWorker):
    """Handler of the requests to a side that serves clients."""

    housekeeping = True

    def __init__(self) -> None:
        super().__init__()
        self._serving = ExitStack()
        self._server: Server
        self._peak = 0

    def serve(self, settings: dict[str, Any]) -> int:
        """Open a new store and serve it; return the port. ``settings``: of ``WriteSettings``."""
        self._side.open()
        self._server = self._serving.enter_context(
            serving_writable(self._side.store, WriteSettings(**settings))
        )
        self._written, self._io = self._side.written(), measures.input_output()
        self._cpu = time.process_time()
        return self._server.ports[0]

    def observe(self) -> int:
        """Take a sample of the memory; return the number of connections so far."""
        with self._unmeasured():
            self._peak = max(self._peak, measures.pss_bytes())
        return self._server.connected

    def stop_serving(self) -> dict[str, Any]:
        """Wait until the clients have gone, and close the store; return the ``ServedLoad``.

        What the side has in memory is written then, so it counts.

        Raises:
            StoreError: a client is still connected.
        """
        self.observe()
        server = self._server
        with self._unmeasured():
            figures = self._after_the_clients()
        self._side.store.flush()  # before it is closed, so that backends count what they write
        self.close()
        cpu = time.process_time()
        (read, written), (read_now, written_now) = self._io, measures.input_output()
        counted, counted_now = self._written, self._side.written()
        return ServedLoad(
            connections=server.connected, messages_in=figures.messages_in,
            messages_out=figures.messages_out,
            refused=sum(
                each.total for each in server.counts.snapshot()
                if each.request in _SENDS and each.response not in _STORED
            ),
            cpu_seconds=cpu - self._cpu, read_bytes=read_now - read,
            written_bytes=written_now - written,
            backend_written={name: counted_now[name] - counted[name] for name in counted_now},
            pss_bytes=self._peak, disk_bytes=self._side.disk_bytes(),
        ).model_dump()  # fmt: skip

    def _after_the_clients(self) -> ServerFigures:
        """Return the figures of the server when it has read all that ended clients have sent."""
        deadline = time.monotonic() + _END_SECONDS
        while (figures := self._server.figures()).connections:
            if time.monotonic() > deadline:
                raise StoreError(
                    f"{figures.connections} connections remain {_END_SECONDS:g} s after the end of"
                    " the client: it must wait for all its processes"
                )
            time.sleep(_LOOK_SECONDS)
        return figures

    @contextmanager
    def _unmeasured(self) -> Iterator[None]:
        """Do not count the CPU time of this thread in the block."""
        began = time.thread_time()
        yield
        self._cpu += time.thread_time() - began

    def shape(self) -> dict[str, Any]:
        """Return the ``Shape`` of the open store."""
        store = self._side.store
        spans = list(store.queue_spans())
        counts = np.array([each.max_offset - each.min_offset for each in spans], np.int64)
        topics = {each.queue.topic for each in spans}
        return shape_of(self._side.root, len(topics), counts, store).model_dump()

    def close(self) -> None:
        """Stop the server if it runs, and close the side's store."""
        self._serving.close()
        super().close()


if __name__ == "__main__":
    main(ServerWorker())
