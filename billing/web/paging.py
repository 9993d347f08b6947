"""Pages of lists that are in memory, and addresses that keep the filter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import urlencode

from django.http import HttpRequest

T = TypeVar("T")
SIZE = 100
_LAST = 100_000


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some rows. ``query`` is the filter as a query string without the page; numbers are 0 where there is none."""

    rows: Sequence[T]
    number: int
    following: int
    total: int | None
    query: str

    @property
    def previous(self) -> int:
        """The page before; 0 on the first one."""
        return self.number - 1

    @property
    def first_row(self) -> int:
        """The number of the first row that is shown, from 1."""
        return (self.number - 1) * SIZE + 1

    @property
    def last_row(self) -> int:
        """The number of the last one."""
        return self.first_row + len(self.rows) - 1


def page_number(request: HttpRequest) -> int:
    """``?page=``, from 1; anything else is the first page."""
    text = request.GET.get("page", "")
    return max(1, min(int(text), _LAST)) if re.fullmatch(r"[0-9]{1,9}", text) else 1


def query_of(request: HttpRequest) -> str:
    """The query without the page and without what is empty."""
    pairs = [(key, value) for key, values in request.GET.lists() for value in values if value and key != "page"]
    return urlencode(pairs)


def page_of(request: HttpRequest, rows: Sequence[T]) -> Page[T]:
    """A page of rows that are all there."""
    number = page_number(request)
    part = rows[(number - 1) * SIZE : number * SIZE]
    return Page(part, number, number + 1 if len(rows) > number * SIZE else 0, len(rows), query_of(request))


def page_from(request: HttpRequest, rows: Sequence[T], total: int | None = None) -> Page[T]:
    """A page of rows that were read from its offset, one more than fits."""
    number = page_number(request)
    return Page(rows[:SIZE], number, number + 1 if len(rows) > SIZE else 0, total, query_of(request))
