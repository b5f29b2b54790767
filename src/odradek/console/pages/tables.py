"""Tables of any length: sorted, searched and cut into pages here, so that a browser gets one page of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from nicegui import ui
from nicegui.events import GenericEventArguments

from odradek.console.clusters import Right
from odradek.console.pages.frame import Page

R = TypeVar("R")

LOOK = "flat bordered dense rows-per-page-label=Rows"
PAGE_ROWS = 50
MAX_PAGE_ROWS = 200
_ACT = (
    '<q-td :props="props" auto-width><q-btn flat dense size="sm" color="negative" :label="props.col.label" '
    "@click.stop=\"() => $parent.$emit('act', props.row._key)\" /></q-td>"
)
_NOTHING = '<div class="q-pa-xs">{{ props.message }}</div>'
_LINK = '<q-td :props="props"><a v-if="props.row._href" :href="props.row._href">{{ props.value }}</a></q-td>'


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """One column.

    Attributes:
        show: the text of a cell; sort: the sort key, by default the text.
        wide: hidden on phones.
    """

    name: str
    label: str
    show: Callable[[R], object]
    sort: Callable[[R], Any] | None = None
    right: bool = False
    wide: bool = False

    def as_quasar(self) -> dict[str, Any]:
        """The column in Quasar's form."""
        hidden = "gt-xs" if self.wide else ""
        return {
            "name": self.name,
            "label": self.label,
            "field": self.name,
            "sortable": True,
            "align": "right" if self.right else "left",
            "classes": hidden,
            "headerClasses": hidden,
        }


class PagedTable(Generic[R]):
    """A table of the present result of `rows`."""

    def __init__(
        self,
        page: Page,
        columns: Sequence[Column[R]],
        rows: Callable[[], Iterable[R]],
        *,
        href: Callable[[R], str] | None = None,
        empty: str = "There is nothing.",
        order: str = "",
        descending: bool = False,
        searched: bool = True,
        act: tuple[str, Callable[[R], Awaitable[None]]] | None = None,
    ) -> None:
        """`href` is the link of the first column; `act` is the action of a button in each row, with its label."""
        self._columns = {column.name: column for column in columns}
        self._page = page
        self._rows = rows
        self._href = href
        self._text = ""
        self._here: list[R] = []
        self._act = act
        pagination = {
            "page": 1,
            "rowsPerPage": PAGE_ROWS,
            "rowsNumber": 0,
            "sortBy": order or columns[0].name,
            "descending": descending,
        }
        if searched:
            page.search = (
                ui.input(label="Search", on_change=self._searched)
                .props('dense clearable debounce=200 type=search aria-label="Search"')
                .classes("w-full max-w-md")
            )
        self.table = (
            ui.table(columns=self._quasar_columns(), rows=[], row_key="_key", pagination=pagination)
            .classes("w-full")
            .props(LOOK)
            .props(f'binary-state-sort no-data-label="{empty}" :rows-per-page-options="[20,50,200]"')
        )
        # Quasar's own has a sign of warning: that there is nothing is mostly well.
        self.table.add_slot("no-data", _NOTHING)
        if href is not None:
            self.table.add_slot(f"body-cell-{columns[0].name}", _LINK)
        if act is not None:
            self.table.add_slot("body-cell-_act", _ACT)
            self.table.on("act", self._acted)
        self.table.on("request", self._asked)
        page.shows(self.show)

    def _quasar_columns(self) -> list[dict[str, Any]]:
        shown = [column.as_quasar() for column in self._columns.values()]
        return shown if self._act is None else [*shown, {"name": "_act", "label": self._act[0], "field": "_key"}]

    async def _acted(self, event: GenericEventArguments) -> None:
        at = event.args
        if self._act is not None and isinstance(at, int) and 0 <= at < len(self._here):
            await self._act[1](self._here[at])

    def _searched(self, event: Any) -> None:
        self._text = str(event.value or "").lower()
        self.table.pagination = {**self.table.pagination, "page": 1}
        self.show()

    def _asked(self, event: GenericEventArguments) -> None:
        wanted = event.args["pagination"]
        self.table.pagination = {
            **self.table.pagination,
            "page": max(1, int(wanted.get("page") or 1)),
            "rowsPerPage": min(MAX_PAGE_ROWS, max(1, int(wanted.get("rowsPerPage") or MAX_PAGE_ROWS))),
            "sortBy": wanted.get("sortBy"),
            "descending": bool(wanted.get("descending")),
        }
        self.show()

    def show(self) -> None:
        """Send the rows of this page, where they are other ones, and the user may see them still."""
        if not self._page.may(Right.SEE):
            return
        pagination = dict(self.table.pagination)
        first = next(iter(self._columns.values()))
        rows = list(self._rows())
        if self._text:
            rows = [row for row in rows if self._text in str(first.show(row)).lower()]
        column = self._columns.get(pagination.get("sortBy") or "", first)
        rows.sort(key=lambda row: _sortable((column.sort or column.show)(row)), reverse=bool(pagination["descending"]))
        size = pagination["rowsPerPage"]
        pagination["rowsNumber"] = len(rows)
        pagination["page"] = min(pagination["page"], max(1, -(-len(rows) // size)))
        if pagination != self.table.pagination:
            self.table.pagination = pagination
        begin = (pagination["page"] - 1) * size
        self._here = rows[begin : begin + size]
        shown = [self._shown(row, at) for at, row in enumerate(self._here)]
        if shown != self.table.rows:
            self.table.rows = shown

    def _shown(self, row: R, key: int) -> dict[str, Any]:
        cells: dict[str, Any] = {name: str(column.show(row)) for name, column in self._columns.items()}
        cells["_key"] = key
        if self._href is not None:
            cells["_href"] = self._href(row)
        return cells


def _sortable(value: Any) -> tuple[bool, Any]:
    """A sort key; unknown values come first."""
    return (value is not None, value)
