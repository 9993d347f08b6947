"""The API's JSON parser: strict JSON, nothing the database can't store, bounded depth and numbers."""

import json
from collections.abc import Mapping
from typing import IO, Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

from portal.kernel.text import find_unstorable

LARGEST = 2**63 - 1


class StrictJSONParser(JSONParser):
    """Refuses NaN and Infinity, duplicate keys, integers beyond 64 bits, NULs, lone surrogates, deep nesting."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """The parsed body.

        Raises:
            ParseError: a sentence that says what is wrong (a 400).
        """
        try:
            value = json.loads(
                stream.read().decode("utf-8"),
                parse_constant=_no_constant,
                parse_int=_int64,
                object_pairs_hook=_no_duplicates,
            )
        except UnicodeDecodeError as error:
            raise ParseError("The body is not UTF-8.") from error
        except RecursionError as error:
            raise ParseError("The body is nested too deeply.") from error
        except ValueError as error:
            raise ParseError(f"The body is not valid JSON: {error}.") from error
        where = find_unstorable(value)
        if where is not None:
            raise ParseError(f"The text at {where} holds a NUL or half of a surrogate pair.")
        return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _int64(digits: str) -> int:
    if len(digits) > 20 or not -LARGEST - 1 <= int(digits) <= LARGEST:
        raise ValueError("a whole number is beyond 64 bits")
    return int(digits)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found
