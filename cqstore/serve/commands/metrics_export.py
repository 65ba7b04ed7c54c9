"""The option ``--metrics`` of ``cqstore serve``."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from cqstore.cli.options import note
from cqstore.replication.address import address
from cqstore.replication.endpoint import endpoint
from cqstore.replication.listening import check_listen, is_loopback
from cqstore.serve.server import Server

MetricsExport = Callable[[Server], AbstractContextManager[object]]
"""Exports the metrics of a server while its context is open."""


def metrics_export(root: Path, text: str | None) -> MetricsExport:
    """Return what exports the metrics at the address in ``text``; ``None``: nothing does.

    Raises:
        StoreConfigError: prometheus-client is not installed.
        StoreIOError: cannot listen on the address.
        typer.BadParameter: the address is invalid.
    """
    if text is None:
        return nullcontext
    host, port = address(text, "--metrics", any_port=True)
    from cqstore.serve.server_metrics import exported_metrics  # noqa: PLC0415 - an extra

    check_listen(host, port)
    if not is_loopback(host):
        note(f"other machines can read metrics from {host}: there is no access control for them")

    @contextmanager
    def export(server: Server) -> Iterator[None]:
        with exported_metrics(server, root, host, port) as bound:
            note(f"http://{endpoint(host, bound)}/metrics: serving metrics")
            yield

    return export
