"""JSON from a cluster, without what the database can't store.

Who may make a pod there may put a NUL into an annotation or a termination message. Kept as it is, it would stop the
watch of the whole cluster: the row can't be written, however often it is tried.
"""

from __future__ import annotations

import json
import re
from typing import Any

# An escape whose backslash is not itself escaped: a whole surrogate pair, or what no text may hold.
_ESCAPE = re.compile(
    r"(?<!\\)((?:\\\\)*)(?:(\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2})|\\u(?:0000|[dD][89a-fA-F][\da-fA-F]{2}))"
)


def loads(data: bytes, **numbers: Any) -> Any:
    """The value; NULs and halves of surrogate pairs in its texts are U+FFFD.

    Args:
        numbers: ``parse_float``, ``parse_int``, ``parse_constant`` of :func:`json.loads`.

    Raises:
        ValueError: it is no JSON, or nested too deeply to be any that is meant.
    """
    text = data.decode("utf-8", "replace")
    if "\\u0000" in text or "\\ud" in text or "\\uD" in text:
        text = _ESCAPE.sub(lambda found: found[1] + (found[2] or r"\ufffd"), text)
    try:
        return json.loads(text, **numbers)
    except RecursionError:
        raise ValueError("nested too deeply") from None
