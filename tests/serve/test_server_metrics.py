"""Metrics of a server as Prometheus reads them over HTTP."""

import asyncio
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from cqstore.serve.server_metrics import exported_metrics
from cqstore.store.errors import StoreIOError
from cqstore.store.service.message_store import MessageStore
from tests.kit.remoting_client import ONEWAY, pull
from tests.kit.remoting_server import serving
from tests.kit.waiting import becomes, run
from tests.serve.conftest import CONFIG, fill
from tests.serve.test_pulls import heartbeat
from tests.store.service.test_prometheus import one


def scraped(port: int) -> list[Sample]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        families = list(text_string_to_metric_families(response.read().decode()))
    assert all(each.documentation for each in families)
    return [sample for each in families for sample in each.samples]


def requests(samples: list[Sample], request: str, response: str) -> float:
    return one(
        samples, "cqstore_serve_requests_total", request_code=request, response_code=response
    )


def test_requests_are_counted_by_code_and_result(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            client = await found.client()
            records = len((await client.ask(11, pull("t", 0, 0))).body)
            for _ in range(3):
                assert (await client.ask(10, {}, b"x")).code == 16
            assert (await client.ask(999)).code == 3
            client.send(34, {}, heartbeat(1), flag=ONEWAY)
            client.send(11, pull("t", 0, 30, wait_ms=300_000))
            await becomes(lambda: len(found.server.held) == 1)
            with exported_metrics(found.server, root, "127.0.0.1", 0) as port:
                samples = await asyncio.to_thread(scraped, port)
            assert requests(samples, "pull_message", "success") == 1
            assert requests(samples, "send_message", "no_permission") == 3
            assert requests(samples, "999", "request_code_not_supported") == 1
            assert requests(samples, "heart_beat", "oneway") == 1
            sizes = {
                each.labels["request_code"]: each.value
                for each in samples
                if each.name == "cqstore_serve_response_bytes_total"
            }
            assert records < sizes["pull_message"] < records + 500
            assert sizes["heart_beat"] == 0
            named = {"store": str(root)}
            assert one(samples, "cqstore_serve_connections", **named) == 1
            assert one(samples, "cqstore_serve_connections_accepted_total", **named) == 1
            assert one(samples, "cqstore_serve_consumer_groups", **named) == 1
            assert one(samples, "cqstore_serve_waiting_pulls", **named) == 1
            assert one(samples, "cqstore_serve_memory_bytes", **named) == 0
            assert one(samples, "cqstore_serve_messages_in_total", **named) == 0
            assert one(samples, "cqstore_serve_messages_out_total", **named) == 30
            assert one(samples, "process_open_fds") > 0

    run(story())


def test_closed_connections_and_new_messages_are_counted(tmp_path: Path) -> None:
    root = tmp_path / "store"

    async def story(store: MessageStore) -> None:
        async with serving(root) as found:
            liar = await found.client()
            liar.writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await liar.is_closed()
            fill(store, 3, 3)
            store.flush()
            await becomes(lambda: found.broker.served.renewals == 1)
            with exported_metrics(found.server, root, "127.0.0.1", 0) as port:
                samples = await asyncio.to_thread(scraped, port)
            assert one(samples, "cqstore_serve_connections_closed_total") == 1
            assert one(samples, "cqstore_serve_store_openings_total") == 1
            end = one(samples, "cqstore_serve_log_max_phy_offset_bytes")
            assert end == store.max_phy_offset()

    with MessageStore.open(root, CONFIG) as store:
        fill(store, 3)
        store.flush()
        run(story(store))


def test_an_address_in_use_is_named(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            with (
                pytest.raises(StoreIOError, match=r"cannot listen on 127\.0\.0\.1"),
                exported_metrics(found.server, root, "127.0.0.1", found.port),
            ):
                pass

    run(story())
