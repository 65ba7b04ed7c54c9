"""A store that another process writes: what it appends is served, and waiting pulls are woken."""

from pathlib import Path

import pytest

from cqstore.store.service.message_store import MessageStore
from tests.kit.beside_child import Writer
from tests.kit.remoting_client import Client, pull
from tests.kit.remoting_server import serving
from tests.kit.tree import tree_digest
from tests.kit.waiting import run

PULL, MAX, TOPICS = 11, 30, 206


async def ends(client: Client, topic: str) -> list[int]:
    answers = [await client.ask(MAX, {"topic": topic, "queueId": each}) for each in range(3)]
    return [int(each.fields["offset"]) for each in answers]


@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_what_another_process_appends_is_served(tmp_path: Path, backend: str) -> None:
    writer = Writer(tmp_path / "log", backend)
    writer.do("put", "t", 0, 30)
    writer.do("flush")

    async def story() -> None:
        async with serving(tmp_path / "log") as found:
            client = await found.client()
            assert await ends(client, "t") == [10, 10, 10]
            waiting = client.send(PULL, pull("t", 0, 10, wait_ms=300_000))
            writer.do("put", "t", 30, 30)
            writer.do("put", "new", 0, 3)
            writer.do("flush")
            answer = await client.answer(waiting)
            assert answer.code == 0
            assert int(answer.fields["nextBeginOffset"]) == 20
            with MessageStore.open(tmp_path / "log", read_only=True) as store:
                assert answer.body == store.get_message("t", 0, 10).raw
            assert await ends(client, "t") == [20, 20, 20]
            assert set((await client.ask(TOPICS)).json["topicList"]) >= {"t", "new"}
            assert found.broker.served.renewals > 0

    run(story())
    writer.close()


def test_a_store_at_rest_is_not_opened_again(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            client = await found.client()
            answer = await client.ask(PULL, pull("t", 0, 30, wait_ms=700))
            assert answer.code == 19
            assert found.broker.served.renewals == 0

    before = tree_digest(root)
    run(story())
    assert tree_digest(root) == before


def test_expired_files_are_noticed(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "log", "file")
    writer.do("put", "t", 0, 60, 1000)
    writer.do("flush")

    async def story() -> None:
        async with serving(tmp_path / "log") as found:
            client = await found.client()
            writer.do("expire")
            waiting = client.send(PULL, pull("t", 0, 20, wait_ms=300_000))
            writer.do("put", "t", 60, 3)
            writer.do("flush")
            assert (await client.answer(waiting)).code == 0
            gone = await client.ask(PULL, pull("t", 0, 0))
            assert (gone.code, gone.remark) == (21, "OFFSET_TOO_SMALL")
            assert int(gone.fields["minOffset"]) > 0

    run(story())
    writer.close()
