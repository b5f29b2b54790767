"""The frame of all pages: the top bar, the list of pages, dark mode, keyboard shortcuts, the end of the session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from fastapi import Request
from nicegui import ui

from odradek.admin.plan import Plan
from odradek.client.cluster import Cluster
from odradek.common.errors import OdradekError
from odradek.console.answers import LOGIN, LOGOUT
from odradek.console.clusters import Right
from odradek.console.guard import Guard
from odradek.console.kafka_thread import KafkaThread
from odradek.console.sessions import Session
from odradek.console.watch import View, Watch, reason

T = TypeVar("T")

TICK_S = 1.0
DARK_COOKIE = "odradek-dark"
# Path below the cluster, title, icon, and the key that follows "g".
PAGES = (
    ("", "Overview", "monitor_heart", "o"),
    ("/brokers", "Brokers", "dns", "b"),
    ("/topics", "Topics", "list_alt", "t"),
    ("/groups", "Groups", "groups", "c"),
    ("/replication", "Leaders and replicas", "account_tree", "r"),
    ("/quorum", "Quorum", "how_to_vote", "q"),
    ("/moves", "Moves of replicas", "swap_horiz", "m"),
    ("/transactions", "Transactions", "receipt_long", "x"),
    ("/access", "Access and quotas", "lock", "a"),
    ("/links", "Links", "link", "l"),
    ("/pipelines", "Pipelines", "linear_scale", "p"),
)


@dataclass(slots=True)
class Console:
    """All that pages need."""

    kafka: KafkaThread
    watches: dict[str, Watch]
    has_logins: bool
    guard: Guard = field(init=False)


class Page:
    """One page that is open in one browser."""

    def __init__(self, console: Console, session: Session, watch: Watch, here: str) -> None:
        """`here` is its path, to which a login leads back."""
        self._here = here
        self.console = console
        self.watch = watch
        self._session = session
        self._shown = -1
        self._shows: list[Callable[[], None]] = []
        self.search: ui.input | None = None
        self._went = False

    @property
    def view(self) -> View:
        return self.watch.view

    @property
    def cluster(self) -> str:
        return self.watch.config.name

    def path(self, *parts: str) -> str:
        """The path of a page of this cluster."""
        return "/".join(["/c", *(quote(part, safe="") for part in (self.cluster, *parts))])

    @staticmethod
    def quoted(name: str) -> str:
        """A name as part of a query."""
        return quote(name, safe="")

    def may(self, right: Right) -> bool:
        """Whether the user may, now: rights end with the session."""
        return self.console.guard.may(self._session) and self.watch.config.allows(
            self._session.user, right, self._session.groups
        )

    def shows(self, show: Callable[[], None]) -> None:
        """Show something now, and again after each refresh of the cluster."""
        self._shows.append(show)
        show()

    def tick(self) -> None:
        """Once a second."""
        if not self.may(Right.SEE):
            ui.navigate.to(f"{LOGIN}?next={self.quoted(self._here)}" if self.console.has_logins else "/")
        elif self._shown != self.view.number:
            self._shown = self.view.number
            for show in self._shows:
                show()

    async def opened(self) -> bool:
        """Wait until a browser has loaded the page, for slow content; returns whether it is still open."""
        client = ui.context.client
        await client.connected()
        return not client.is_deleted

    async def run(self, right: Right, work: Callable[[Cluster], Awaitable[T]]) -> T | None:
        """Run `work` with the cluster. On an error, or without the permission, notify the user and return None."""
        if not self.may(right):
            ui.notify(f"You may not {right.value} cluster {self.cluster}.", type="negative")
            return None
        try:
            return await self.console.kafka.run(self.watch.do(work))
        except (OdradekError, OSError) as error:
            ui.notify(reason(error), type="negative", multi_line=True, timeout=10_000, close_button="Close")
            return None

    async def run_quietly(self, right: Right, work: Callable[[Cluster], Awaitable[T]]) -> T | None:
        """The same without a notification, for periodic requests, which are soon repeated."""
        if not self.may(right):
            return None
        try:
            return await self.console.kafka.run(self.watch.do(work))
        except (OdradekError, OSError):
            return None

    async def carry_out(self, planning: Callable[[Cluster], Awaitable[Plan]]) -> bool:
        """Plan a change, show it, ask for confirmation, and make it; returns whether it was made."""
        plan = await self.run(Right.CHANGE, planning)
        return plan is not None and await self.change(plan.title, plan.lines, plan.work, typed=plan.typed)

    async def change(
        self, title: str, lines: Sequence[str], work: Callable[[Cluster], Awaitable[Any]], *, typed: str = ""
    ) -> bool:
        """Show a change, ask for confirmation, and make it; returns whether it was made."""
        if not await confirmed(title, lines, typed):
            return False

        async def changing(cluster: Cluster) -> bool:
            await work(cluster)
            self.watch.refresh_soon()
            return True

        done = await self.run(Right.CHANGE, changing)
        if done:
            ui.notify(f"{title}: done.", type="positive")
        return bool(done)

    def on_key(self, event: Any) -> None:
        """Keyboard shortcuts: `/` for the search, `g` and a letter for a page, `?` for help."""
        if not event.action.keydown or event.modifiers.ctrl or event.modifiers.alt or event.modifiers.meta:
            return
        key = event.key.name
        if self._went:
            for path, _, _, letter in PAGES:
                if key == letter:
                    ui.navigate.to(self.path() + path)
        elif key == "/" and self.search is not None:
            self.search.run_method("focus")
        elif key == "?":
            ui.notify(
                "/ search · g then " + ", ".join(f"{letter} {title.lower()}" for _, title, _, letter in PAGES),
                timeout=8000,
            )
        self._went = key == "g"


async def confirmed(title: str, lines: Sequence[str], typed: str = "") -> bool:
    """Ask for confirmation; if the change cannot be undone, the user must type a name."""
    with ui.dialog() as dialog, ui.card().classes("max-w-2xl"):
        ui.label(title).classes("text-h6 break-all")
        for line in lines:
            ui.label(line).classes("break-all")
        name = ui.input(f"Type {typed} to go on").classes("w-full") if typed else None

        def submit() -> None:
            if name is None or str(name.value or "").strip() == typed:
                dialog.submit(True)
            else:
                ui.notify(f"Type {typed} first.", type="negative")

        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat autofocus")
            ui.button("Do it", color="negative", on_click=submit)
    try:
        return bool(await dialog)
    finally:
        dialog.delete()


def open_plain(console: Console, request: Request) -> Session:
    """The frame of a page without a cluster; returns the user."""
    session: Session = request.state.session
    ui.page_title("Odradek")
    _bar(console, session, request, None)
    return session


def open_page(console: Console, request: Request, cluster: str, title: str) -> Page | None:
    """The frame of a page; None, with a message on the page, if the user has no such cluster."""
    session: Session = request.state.session
    watch = console.watches.get(cluster)
    known = watch is not None and watch.config.allows(session.user, Right.SEE, session.groups)
    here = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
    page = Page(console, session, watch, here) if watch is not None and known else None
    ui.page_title(f"{title} - {cluster} - Odradek" if page else "Odradek")
    _bar(console, session, request, page)
    if page is None:
        ui.label(f"There is no cluster {cluster[:60]} here.").classes("text-h6")
        ui.link("All clusters", "/")
        return None
    ui.timer(TICK_S, page.tick)
    ui.keyboard(on_key=page.on_key)
    ui.label(title).classes("text-h5 break-all").props("role=heading aria-level=1")
    banner = ui.label().classes("text-white bg-negative p-2 rounded w-full").props("role=alert")

    def show_error() -> None:
        view = page.view
        waiting = "" if view.snapshot else f"{page.cluster} was not reached yet."
        banner.text = f"The last look at {page.cluster} failed: {view.error}" if view.error else waiting
        banner.visible = bool(banner.text)

    page.shows(show_error)
    return page


def _bar(console: Console, session: Session, request: Request, page: Page | None) -> None:
    # Of the reds that text on white and on black can have.
    ui.colors(primary="#24527a", negative="#d32f2f")
    ui.add_css(".nicegui-content { max-width: 100rem; margin: auto; } a { color: inherit; }")
    kept = request.cookies.get(DARK_COOKIE)
    dark = ui.dark_mode({"1": True, "0": False}.get(kept or ""))

    def turn() -> None:
        dark.value = not dark.value
        kept = f"{DARK_COOKIE}={int(dark.value)}; path=/; max-age=31536000; samesite=lax"
        ui.run_javascript(f"document.cookie = '{kept}'")

    with ui.header().classes("items-center q-py-xs"):
        drawer_button = ui.button(icon="menu").props('flat round dense color=white aria-label="Pages"')
        ui.link("Odradek", "/").classes("text-white text-h6 no-underline")
        if page is not None:
            ui.label(page.cluster).classes("text-subtitle1 ellipsis")
            if not page.watch.config.allows(session.user, Right.CHANGE, session.groups):
                ui.badge("read-only", color="grey-8")
        ui.space()
        ui.button(icon="contrast", on_click=turn).props('flat round dense color=white aria-label="Dark or light"')
        if session.user:
            ui.label(session.user).classes("gt-xs")
            with ui.element("form").props(f'method=post action="{LOGOUT}"'):
                ui.button(icon="logout").props('flat round dense color=white type=submit aria-label="Log out"')
    drawer_button.visible = page is not None
    if page is not None:
        drawer = _list_of_pages(page)
        drawer_button.on("click", js_handler=f"() => getElement({drawer.id}).toggle()")


def _list_of_pages(page: Page) -> ui.left_drawer:
    # Without a value the server would request it from each browser, and wait.
    with (
        ui.left_drawer(value=False).props("show-if-above width=220 breakpoint=800") as drawer,
        ui.list().props("dense").classes("w-full"),
    ):
        for path, title, icon, _ in PAGES:
            with ui.item().props(f'tag=a href="{page.path()}{path}"'):
                with ui.item_section().props("avatar"):
                    ui.icon(icon)
                ui.item_section(title)
        if len(page.console.watches) > 1:
            with ui.item().props('tag=a href="/"'):
                with ui.item_section().props("avatar"):
                    ui.icon("hub")
                ui.item_section("All clusters")
    return drawer
