"""CSV files for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from django.http import HttpResponse

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_response(name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> HttpResponse:
    """A download, made in memory as a whole: rows of a scope must not be streamed after it has closed."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(value) for value in row])
    response = HttpResponse(buffer.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _cell(value: object) -> object:
    """No text that a spreadsheet takes for a formula: people choose names."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
