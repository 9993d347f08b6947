"""YAML or JSON text to plain data, for input that nobody vouches for.

Kubernetes' reading of scalars (YAML 1.2: ``yes`` is a text, ``010`` is ten), positions for error messages, and no
surprises: duplicate keys, tags, anchors and aliases are refused, and size, depth and the number of values are
bounded, so that a text of a few lines can't unfold into gigabytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, Event, NodeEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tenants.manifest.tree import FieldError, ManifestInvalid

MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_VALUES = 20_000
MAX_DOCUMENTS = 50

_INT = re.compile(r"[-+]?[0-9]{1,18}\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?\Z")
_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


@dataclass(frozen=True)
class Document:
    """One document: its data and where each value stands (JSON pointer → 1-based line and column)."""

    data: Any
    positions: dict[str, tuple[int, int]] = field(default_factory=dict)


def load_documents(text: str) -> list[Document]:
    """Every document of a text, empty ones left out.

    Raises:
        ManifestInvalid: the text is too large, not YAML, or uses what is refused; with line and column.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise _refused(f"the text is {size:,} bytes long; at most {MAX_BYTES:,} are read. Split it into several.")
    try:
        _check_events(yaml.parse(text, Loader=yaml.SafeLoader))
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise ManifestInvalid(
            [FieldError("", f"this is not YAML: {error.problem or error.context}. Correct the text here.", *at)]
        ) from error
    except (yaml.YAMLError, UnicodeError, ValueError) as error:
        raise _refused(f"this is not YAML: {str(error).splitlines()[0]}.") from error
    documents = [_document(node) for node in nodes]
    return [document for document in documents if document.data is not None]


def load_document(text: str) -> Document:
    """The only document of a text.

    Raises:
        ManifestInvalid: as :func:`load_documents`, or there is none, or more than one.
    """
    documents = load_documents(text)
    if len(documents) != 1:
        what = "nothing in it" if not documents else f"{len(documents)} documents in it"
        raise _refused(f"the text has {what}; give exactly one ModelDeployment.")
    return documents[0]


def pointer_join(pointer: str, key: str | int) -> str:
    """A JSON pointer one step deeper (RFC 6901)."""
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


def _refused(detail: str) -> ManifestInvalid:
    return ManifestInvalid([FieldError("", detail)])


def _check_events(events: Iterator[Event]) -> None:
    """Walk the text once without building anything, so that nothing is built from a bomb."""
    depth = values = documents = 0
    for event in events:
        mark = event.start_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        if isinstance(event, AliasEvent) or (isinstance(event, NodeEvent) and event.anchor):
            raise ManifestInvalid(
                [FieldError("", "anchors and aliases (& and *) are not read; write the values out.", line, column)]
            )
        if getattr(event, "tag", None):
            raise ManifestInvalid(
                [FieldError("", f"the tag {event.tag!r} is not read; leave it out.", line, column)]  # type: ignore[attr-defined]
            )
        if isinstance(event, CollectionStartEvent):
            depth += 1
        elif isinstance(event, CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        values += isinstance(event, NodeEvent)
        if depth > MAX_DEPTH or values > MAX_VALUES or documents > MAX_DOCUMENTS:
            raise ManifestInvalid(
                [
                    FieldError(
                        "",
                        f"the text goes more than {MAX_DEPTH} levels deep, or holds more than {MAX_VALUES:,} values "
                        f"or {MAX_DOCUMENTS} documents. Split or flatten it.",
                        line,
                        column,
                    )
                ]
            )


def _document(root: Node) -> Document:
    positions: dict[str, tuple[int, int]] = {}
    errors: list[FieldError] = []

    def plain(node: Node, pointer: str) -> Any:
        at = (node.start_mark.line + 1, node.start_mark.column + 1)
        positions[pointer] = at
        if isinstance(node, MappingNode):
            out: dict[str, Any] = {}
            for key_node, value_node in node.value:
                key_at = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
                if not isinstance(key_node, ScalarNode):
                    errors.append(FieldError(pointer, "a key must be a plain text.", *key_at))
                    continue
                key = key_node.value
                child = pointer_join(pointer, key)
                if key in out:
                    errors.append(FieldError(child, f"{key!r} is given twice here; keep one of them.", *key_at))
                    continue
                out[key] = plain(value_node, child)
                positions[child] = key_at
            return out
        if isinstance(node, SequenceNode):
            return [plain(item, pointer_join(pointer, index)) for index, item in enumerate(node.value)]
        assert isinstance(node, ScalarNode)
        return _scalar(node)

    data = plain(root, "")
    if errors:
        raise ManifestInvalid(errors)
    return Document(data, positions)


def _scalar(node: ScalarNode) -> Any:
    text: str = node.value
    if node.style is not None:  # quoted or a block: always a text
        return text
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.match(text):
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    return text
