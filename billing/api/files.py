"""Answers that are files: CSV where it is asked for, problems as JSON as everywhere."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from rest_framework.renderers import BaseRenderer, JSONRenderer

CSV_ANSWER = {(200, "text/csv"): OpenApiTypes.STR}


class CSVRenderer(BaseRenderer):
    """Lets ``Accept: text/csv`` pass. The view answers with the file itself, so only problems come through here."""

    media_type = "text/csv"
    format = "csv"
    charset = "utf-8"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        """A problem, as JSON."""
        return bytes(JSONRenderer().render(data, "application/json", renderer_context))


FILE_RENDERERS = [CSVRenderer, JSONRenderer]
