"""Reading pasted YAML with one or more manifests."""

from __future__ import annotations

from typing import Any

import yaml

from portal.kernel.problems import Invalid

MOST = 50


def manifest_documents(text: str) -> list[dict[str, Any]]:
    """The documents of a YAML text, each a mapping. Aliases are not read (they can be made to explode).

    Raises:
        Invalid: no YAML, aliases, no mapping, none or too many; with the line where there is one.
    """
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise Invalid.field("/manifest", "Anchors and aliases (& and *) are not read; write the values out.")
        found = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise Invalid.field("/manifest", f"This is not YAML: {line}{error.problem}.") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise Invalid.field("/manifest", f"This is not YAML: {error}.") from error
    if not 1 <= len(found) <= MOST or not all(isinstance(document, dict) for document in found):
        raise Invalid.field("/manifest", f"Paste 1 to {MOST} manifests, each a mapping, separated by ---.")
    return found
