"""Requests that a connected consumer answers, passed on by the server."""

from pathlib import Path

import pytest

from cqstore.serve.limits import ServeLimits
from tests.kit.remoting_client import BINARY, JSON, Client, asked
from tests.kit.remoting_server import serving, with_limits
from tests.kit.waiting import becomes, run
from tests.serve.test_pulls import heartbeat

INFO = 307
OF_G = {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true"}
RESPONSE = 1


def answer(client: Client, opaque: int, code: int, body: bytes, **fields: str) -> None:
    """Send a response, as a consumer does."""
    client.writer.write(asked(code, opaque, fields, body, flag=RESPONSE))


@pytest.mark.parametrize("form", [JSON, BINARY])
def test_a_consumer_is_asked_and_its_answer_is_passed_back(root: Path, form: int) -> None:
    async def story() -> None:
        async with serving(root) as found:
            consumer, tool = await found.client(), await found.client()
            await consumer.ask(34, {}, heartbeat(1))
            number = tool.send(INFO, OF_G, form=form)
            request = await consumer.next_answer()
            assert (request.code, request.flag, request.fields) == (INFO, 0, OF_G)
            body = b'{"properties":{}}'
            answer(consumer, request.opaque + 1, 0, b"to no request")
            answer(tool, request.opaque, 0, b"of another client")
            answer(consumer, request.opaque, 0, body, more="1")
            passed = await tool.answer(number)
            assert (passed.code, passed.body, passed.form) == (0, body, form)
            assert passed.fields == {"more": "1"}
            assert len(found.server._calls) == 0
            answer(consumer, request.opaque, 0, b"twice")
            assert (await consumer.ask(34, {}, heartbeat(1))).code == 0

    run(story())


def test_a_refusal_of_the_consumer_is_passed_back(root: Path) -> None:
    async def story() -> None:
        async with serving(root) as found:
            consumer, tool = await found.client(), await found.client()
            await consumer.ask(34, {}, heartbeat(1))
            number = tool.send(INFO, OF_G)
            answer(consumer, (await consumer.next_answer()).opaque, 1, b"")
            assert (await tool.answer(number)).code == 1

    run(story())


@pytest.mark.parametrize(
    "fields", [OF_G | {"consumerGroup": "h"}, OF_G | {"clientId": "c2"}], ids=["group", "client"]
)
def test_a_consumer_that_is_not_connected_is_named(root: Path, fields: dict[str, str]) -> None:
    async def story() -> None:
        async with serving(root) as found:
            consumer, tool = await found.client(), await found.client()
            await consumer.ask(34, {}, heartbeat(1))
            refused = await tool.ask(INFO, fields)
            named = f"The Consumer <{fields['consumerGroup']}> <{fields['clientId']}> not online"
            assert (refused.code, refused.remark) == (1, named)

    run(story())


def test_a_consumer_that_is_silent_or_goes_ends_the_request(root: Path) -> None:
    async def story(limits: ServeLimits, *, goes: bool, expected: tuple[int, str]) -> None:
        async with serving(root, limits=limits) as found:
            consumer, tool = await found.client(), await found.client()
            await consumer.ask(34, {}, heartbeat(1))
            number = tool.send(INFO, OF_G)
            await consumer.next_answer()
            if goes:
                consumer.close()
            refused = await tool.answer(number)
            assert (refused.code, refused.remark) == expected
            assert len(found.server._calls) == 0

    late = (207, "consumer <g> <c1> Timeout: no response")
    gone = (1, "invoke consumer <g> <c1> Exception: the client has disconnected")
    run(story(with_limits(call_seconds=0.01), goes=False, expected=late))
    run(story(ServeLimits(), goes=True, expected=gone))


def test_an_answer_that_is_too_large_is_not_kept(root: Path) -> None:
    async def story() -> None:
        async with serving(root, limits=with_limits(body_bytes=1000)) as found:
            consumer, tool = await found.client(), await found.client()
            await consumer.ask(34, {}, heartbeat(1))
            number = tool.send(INFO, OF_G)
            answer(consumer, (await consumer.next_answer()).opaque, 0, b"x" * 1001)
            refused = await tool.answer(number)
            assert (refused.code, "has 1001 bytes" in refused.remark) == (1, True)

    run(story())


def test_requests_to_consumers_are_limited_per_address(root: Path) -> None:
    async def story() -> None:
        async with serving(root, limits=with_limits(jobs_per_address=3)) as found:
            consumer, tool = await found.client(), await found.client()
            await consumer.ask(34, {}, heartbeat(1))
            numbers = [tool.send(INFO, OF_G) for _ in range(4)]
            assert (await tool.answer(numbers[3])).code == 2
            assert len(found.server._calls) == 3
            tool.close()  # the requests of a tool that has gone end with the answers
            for _ in range(3):
                answer(consumer, (await consumer.next_answer()).opaque, 0, b"")
            await becomes(lambda: not found.server._calls)
            assert found.server._handlers._quota.total == 0

    run(story())
