"""Text that PostgreSQL can't store: NUL characters and lone surrogates. Found here, refused before the database."""

from typing import Any


def storable(text: str) -> bool:
    """False if the text holds a NUL or half of a surrogate pair."""
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def find_unstorable(value: Any, pointer: str = "") -> str | None:
    """The RFC 6901 pointer of the first text (or key) within ``value`` that can't be stored, or ``None``.

    Walks without recursion, so depth is no danger.
    """
    stack: list[tuple[str, Any]] = [(pointer, value)]
    while stack:
        where, item = stack.pop()
        if isinstance(item, str):
            if not storable(item):
                return where or "/"
        elif isinstance(item, dict):
            for key, nested in item.items():
                if isinstance(key, str) and not storable(key):
                    return where or "/"
                stack.append((f"{where}/{str(key).replace('~', '~0').replace('/', '~1')}", nested))
        elif isinstance(item, list | tuple):
            stack.extend((f"{where}/{index}", nested) for index, nested in enumerate(item))
    return None
