"""The page that a scrape gets: made beside the loop, once for all who ask meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import ClassVar

from odradek.common.metrics import Family, Sample
from odradek.server.metrics_page import MetricsPage
from odradek.server.network.http_pages import HttpConnection, Page, Pages
from tests.support.waiting import eventually_async


class Noting(tuple[Sample, ...]):
    """Samples that note which thread reads them."""

    threads: ClassVar[set[int]] = set()

    def __iter__(self) -> Iterator[Sample]:
        self.threads.add(threading.get_ident())
        return super().__iter__()


def page_of(value: Callable[[], Awaitable[float]]) -> MetricsPage:
    async def families() -> list[Family]:
        return [Family("one", "gauge", "A number.", Noting((Sample(await value()),)))]

    return MetricsPage(families, processes=False)


async def get(port: int, request: bytes = b"GET /metrics HTTP/1.1\r\n\r\n") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def served(pages: Pages, talk: Callable[[int], Awaitable[None]]) -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: HttpConnection(pages, clients_below=1_000_000), "127.0.0.1", 0
    )
    async with server:
        await talk(server.sockets[0].getsockname()[1])


def test_a_page_is_made_once_for_all_who_ask_meanwhile_and_beside_the_loop() -> None:
    async def scenario() -> None:
        may_go_on, asked = asyncio.Event(), 0

        async def value() -> float:
            nonlocal asked
            asked += 1
            await may_go_on.wait()
            return asked

        page = page_of(value)

        async def talk(port: int) -> None:
            answers = [asyncio.create_task(get(port)) for _ in range(3)]
            await eventually_async(lambda: asked == 1)
            assert b"alive" in await get(port, b"GET /livez HTTP/1.1\r\n\r\n"), "others are answered meanwhile"
            may_go_on.set()
            assert all(b"\none 1.0\n" in answer for answer in await asyncio.gather(*answers))
            assert b"\none 2.0\n" in await get(port), "the next one is a new one"
            head = await get(port, b"HEAD /metrics HTTP/1.1\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK") and head.endswith(b"\r\n\r\n")

        await served({b"/metrics": page.page, b"/livez": lambda: Page(b"alive")}, talk)

    Noting.threads.clear()
    asyncio.run(scenario())
    assert Noting.threads and threading.get_ident() not in Noting.threads


def test_a_page_that_cannot_be_made_is_an_error_and_the_next_is_tried() -> None:
    async def scenario() -> None:
        outcomes = iter([ValueError("planted"), None])

        async def value() -> float:
            error = next(outcomes)
            if error is not None:
                raise error
            return 7

        async def talk(port: int) -> None:
            assert (await get(port)).startswith(b"HTTP/1.1 500 ")
            assert b"\none 7.0\n" in await get(port)

        await served({b"/metrics": page_of(value).page}, talk)

    asyncio.run(scenario())


def test_a_page_under_way_ends_with_the_node() -> None:
    async def scenario() -> None:
        never: asyncio.Future[float] = asyncio.get_running_loop().create_future()

        async def value() -> float:
            return await never

        page = page_of(value)
        await page.stop()

        async def talk(port: int) -> None:
            answer = asyncio.create_task(get(port))
            await eventually_async(lambda: page._building is not None)
            await page.stop()
            assert (await answer).startswith(b"HTTP/1.1 500 ")
            assert page._building is None

        await served({b"/metrics": page.page}, talk)

    asyncio.run(scenario())
