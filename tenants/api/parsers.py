"""YAML bodies are taken as text: the manifest reader names every fault with its line."""

from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from portal.kernel.text import storable


class YamlTextParser(BaseParser):
    """``application/yaml``: the text itself, UTF-8."""

    media_type = "application/yaml"

    def parse(  # type: ignore[override]  # a view that takes it knows that it is a text
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> str:
        """The body as text.

        Raises:
            ParseError: it is not UTF-8, or holds a NUL.
            RequestDataTooBig: it is larger than any body may be; no more of it is read (a 413).
        """
        # Of a body that is no JSON and no form, REST framework hands on the stream itself, which knows no limit.
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise RequestDataTooBig
        try:
            text: str = body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ParseError("The body is not UTF-8.") from error
        if not storable(text):
            raise ParseError("The text holds a NUL or half of a surrogate pair.")
        return text
