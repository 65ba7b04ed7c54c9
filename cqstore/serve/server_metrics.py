"""Metrics of a server for Prometheus, at ``http://HOST:PORT/metrics``.

Needs ``prometheus_client`` (``pip install cqstore[metrics]``); imported for ``--metrics`` only.

Source: RocketMQ ``RemotingMetricsManager``, for labels and their values.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cqstore.replication.endpoint import endpoint
from cqstore.serve.codes import ResponseCode
from cqstore.serve.server import Server
from cqstore.store.errors import StoreConfigError, StoreIOError

try:
    from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as exc:
    raise StoreConfigError("this needs prometheus-client: pip install 'cqstore[metrics]'") from exc

_GAUGES = {
    "cqstore_serve_connections": "Connected clients",
    "cqstore_serve_consumer_groups": "Groups with connected consumers",
    "cqstore_serve_waiting_pulls": "Pulls that wait for messages",
    "cqstore_serve_memory_bytes": "Bytes of received requests and of responses not yet sent",
    "cqstore_serve_log_max_phy_offset_bytes": "End of the log as clients see it",
}
_COUNTERS = {
    "cqstore_serve_connections_accepted": "Connections that were accepted",
    "cqstore_serve_connections_closed": "Connections that the server refused or closed",
    "cqstore_serve_messages_in": "Messages of clients that were put",
    "cqstore_serve_messages_out": "Messages that pulls were answered with",
    "cqstore_serve_store_openings": "How often the store was opened again for new messages",
}
_BY_CODE = {
    "cqstore_serve_requests": "Requests by code and result",
    "cqstore_serve_response_bytes": "Bytes of responses by request code and result",
}
_CODE_LABELS = ("store", "request_code", "response_code")
_ONEWAY = "oneway"


class ServerCollector(Collector):
    """Collects the metrics of one server; its label ``store`` is the root folder."""

    def __init__(self, server: Server, root: Path) -> None:
        self._server = server
        self._root = str(root)

    def collect(self) -> Iterable[Metric]:
        """Return the current metrics; the registry calls this from any thread."""
        figures = self._server.figures()
        values = figures._asdict()
        for name, text in _GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=("store",))
            gauge.add_metric((self._root,), values[name.removeprefix("cqstore_serve_")])
            yield gauge
        for name, text in _COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=("store",))
            counter.add_metric((self._root,), values[name.removeprefix("cqstore_serve_")])
            yield counter
        yield from self._by_code()

    def _by_code(self) -> Iterator[Metric]:
        requests, sizes = (
            CounterMetricFamily(name, text, labels=_CODE_LABELS) for name, text in _BY_CODE.items()
        )
        for each in self._server.counts.snapshot():
            labels = (self._root, each.request.lower(), _result(each.response))
            requests.add_metric(labels, each.total)
            sizes.add_metric(labels, each.bytes)
        yield requests
        yield sizes


@contextmanager
def exported_metrics(server: Server, root: Path, host: str, port: int) -> Iterator[int]:
    """Serve the metrics of ``server`` and of this process over HTTP; yield the port.

    Raises:
        StoreIOError: cannot listen on the address.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(ServerCollector(server, root))
    try:
        exporter, thread = start_http_server(port, host, registry)
    except OSError as exc:
        raise StoreIOError(f"cannot listen on {endpoint(host, port)}: {exc.strerror}") from exc
    try:
        yield exporter.server_port
    finally:
        exporter.shutdown()
        exporter.server_close()
        thread.join()


def _result(response: int) -> str:
    """Return RocketMQ's name of a result, in lower case as in a broker's own labels."""
    if response < 0:
        return _ONEWAY
    try:
        return ResponseCode(response).name.lower()
    except ValueError:
        return str(response)
