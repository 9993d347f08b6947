"""What a client of an endpoint can do, whichever way it goes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Cause = Literal[
    "dns", "refused", "timeout", "tls", "broken", "too_large", "redirect", "proxy", "unauthorized", "address", "secret"
]

MAX_BYTES = 64 * 1024 * 1024
"""A larger answer is refused: the question has to be cut into smaller windows."""
LONGEST_ADDRESS = 3000
"""Characters of path and query above which a form is posted instead, where that is possible."""


@dataclass(frozen=True)
class Reply:
    """An HTTP answer of any status but a redirect. ``headers`` has lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        """``application/json``, without parameters; empty where none was sent."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class EndpointError(Exception):
    """Nothing usable came back. ``sentence`` is for people, and names no secret.

    Attributes:
        cause: ``dns``, ``refused``, ``timeout``, ``tls``, ``broken`` (the connection), ``too_large``, ``redirect``,
            ``proxy`` (the API server could not or did not want to pass the question on), ``unauthorized`` (the API
            server does not accept us or lacks the right), ``address`` (what was set can't be asked), ``secret``
            (what was stored can't be read).
        retry: whether asking again later may do.
    """

    def __init__(self, sentence: str, cause: Cause) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.cause: Cause = cause

    @property
    def retry(self) -> bool:
        """Whether the same question may be answered later with nobody changing anything."""
        return self.cause in ("dns", "refused", "timeout", "broken", "proxy")


class EndpointClient(ABC):
    """Asks one endpoint. Used by one thread, and closed by the ``with`` block of :func:`open_endpoint`.

    Args:
        label: what sentences call it: ``Prometheus of cluster gpu-fra-1``.
    """

    can_post = False
    """Whether :meth:`post_form` can be used (not through the API server's proxy: it would be a write there)."""

    def __init__(self, label: str) -> None:
        self.label = label

    @abstractmethod
    def get(
        self,
        path: str,
        params: Sequence[tuple[str, str]] = (),
        *,
        timeout: float = 30,
        max_bytes: int = MAX_BYTES,
    ) -> Reply:
        """GET ``path`` below the endpoint's base address.

        Args:
            path: begins with a slash; what follows the base address or the prefix.
            params: the query; a key may come several times.
            timeout: seconds for the whole of it.
            max_bytes: of the answer, uncompressed.

        Raises:
            EndpointError: nothing usable came back.
        """

    def post_form(
        self,
        path: str,
        params: Sequence[tuple[str, str]],
        *,
        timeout: float = 30,
        max_bytes: int = MAX_BYTES,
    ) -> Reply:
        """As :meth:`get` with the parameters as a form: for questions too long for an address. Reads only."""
        raise EndpointError(f"{self.label} can't be asked by POST.", "address")
