"""What can go wrong with a cluster, as classes. Each error is a sentence that names the cluster and the
object.

Two families, for who decides what happens next:

- :class:`Retryable`: asking again later may succeed with nobody changing anything;
- :class:`Permanent`: somebody must change something first (the manifest, a right, a quota's owner).

An error never carries request headers or bodies, and what a server said is cut and cleaned of tokens.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_MAX_MESSAGE = 600
_MOST_READ = 8 * _MAX_MESSAGE
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_SECRETS = (
    re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]*){0,2}"),
    re.compile(r"-----BEGIN [A-Z ]+-----.*?(-----END [A-Z ]+-----|$)", re.DOTALL),
    # The first colon only, or a text of many colons is tried at each of them.
    re.compile(r"(?<=//)[^/@:\s]*:[^/@\s]+(?=@)"),
)


def clean(message: str) -> str:
    """``message`` without tokens, keys and passwords, on one line, at most 600 characters that can be stored."""
    # Cut first: a server may say megabytes, and what is hidden by a pattern is never shorter than its beginning.
    message = _UNSTORABLE.sub("\ufffd", message[:_MOST_READ])
    for pattern in _SECRETS:
        message = pattern.sub("[removed]", message)
    message = " ".join(message.split())
    return message if len(message) <= _MAX_MESSAGE else message[: _MAX_MESSAGE - 1] + "…"


@dataclass(frozen=True)
class Call:
    """What was asked of which cluster: enough to name it to people, nothing secret."""

    cluster: str
    verb: str
    kind: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def what(self) -> str:
        """``Deployment web in namespace applied``"""
        words = " ".join(filter(None, [self.kind, self.name])) or "the API server"
        return f"{words} in namespace {self.namespace}" if self.namespace else words


class KubeError(Exception):
    """Any answer of a cluster that is not a success.

    Args:
        call: what was asked.
        sentence: for people: what, where, what to do.
        status: HTTP status, ``None`` when no answer came.
        message: what the server said; it is cleaned.
    """

    def __init__(self, call: Call, sentence: str, *, status: int | None = None, message: str = "") -> None:
        super().__init__(sentence)
        self.call = call
        self.sentence = sentence
        self.status = status
        self.message = clean(message)

    @property
    def reason(self) -> str:
        """The class name, for a condition's ``reason``."""
        return type(self).__name__


class Retryable(KubeError):
    """Later may do. ``retry_after`` in seconds is what the server asked for, ``None``: it did not say."""

    retry_after: float | None = None


class Permanent(KubeError):
    """Asking again gives the same answer."""


# ---- later may do -----------------------------------------------------------------------------------------


class Unreachable(Retryable):
    """No answer: name not found, refused, timed out, TLS not trusted, connection broken. Never "deleted".

    ``cause`` is one of ``dns``, ``refused``, ``timeout``, ``tls``, ``broken``.
    """

    def __init__(self, call: Call, sentence: str, *, cause: str, message: str = "") -> None:
        super().__init__(call, sentence, message=message)
        self.cause = cause


class StaleWrite(Retryable):
    """The object changed since it was read, or a precondition (uid, resourceVersion) did not hold: read
    again."""


class Gone(Retryable):
    """410: the resourceVersion or continue token is too old: list again.

    ``continue_token``: where the server gave one, a list may go on with it, inconsistently.
    """

    def __init__(
        self, call: Call, sentence: str, *, status: int = 410, message: str = "", continue_token: str = ""
    ) -> None:
        super().__init__(call, sentence, status=status, message=message)
        self.continue_token = continue_token


class NamespaceTerminating(Retryable):
    """The namespace is being deleted; nothing new goes into it until it is gone."""


class EvictionBlocked(Retryable):
    """A PodDisruptionBudget does not allow the eviction now."""


class QuotaRefused(Retryable):
    """A ResourceQuota does not hold what was asked. Quantities by resource name, as the server wrote them."""

    def __init__(
        self,
        call: Call,
        sentence: str,
        *,
        status: int = 403,
        message: str = "",
        quota: str,
        requested: Mapping[str, str],
        used: Mapping[str, str],
        limited: Mapping[str, str],
    ) -> None:
        super().__init__(call, sentence, status=status, message=message)
        self.quota = quota
        self.requested = dict(requested)
        self.used = dict(used)
        self.limited = dict(limited)


# ---- somebody must change something -----------------------------------------------------------------------


@dataclass(frozen=True)
class FieldConflict:
    """One field that another manager owns."""

    manager: str
    field: str


class ApplyConflict(Permanent):
    """Server-side apply: other managers own fields that we want to set."""

    def __init__(
        self,
        call: Call,
        sentence: str,
        *,
        status: int = 409,
        message: str = "",
        conflicts: tuple[FieldConflict, ...],
    ) -> None:
        super().__init__(call, sentence, status=status, message=message)
        self.conflicts = conflicts

    @property
    def managers(self) -> tuple[str, ...]:
        return tuple(sorted({conflict.manager for conflict in self.conflicts}))

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(conflict.field for conflict in self.conflicts)


class AlreadyExists(Permanent):
    """Create only: an object of this name is there."""


class NotFound(Permanent):
    """The API server knows the kind and has no such object. The only answer that means "deleted"."""


class ApiMissing(Permanent):
    """The cluster has no such API (a CRD is not installed), or what answered is no Kubernetes API.

    Not a :class:`NotFound` on purpose: it says nothing about whether an object is there.
    """


class Unauthorized(Permanent):
    """401: the cluster does not accept the credentials."""


class Forbidden(Permanent):
    """403 of the cluster's RBAC: the credentials lack a right."""


class PolicyRefused(Permanent):
    """An admission policy (ValidatingAdmissionPolicy, webhook, Pod Security, LimitRange) said no."""

    def __init__(self, call: Call, sentence: str, *, status: int | None = None, message: str = "", policy: str) -> None:
        super().__init__(call, sentence, status=status, message=message)
        self.policy = policy


@dataclass(frozen=True)
class FieldError:
    """One field that the server found invalid."""

    field: str
    message: str


class Invalid(Permanent):
    """400, 413, 422: the object is not valid. ``errors`` names fields where the server did."""

    def __init__(
        self,
        call: Call,
        sentence: str,
        *,
        status: int | None = None,
        message: str = "",
        errors: tuple[FieldError, ...] = (),
    ) -> None:
        super().__init__(call, sentence, status=status, message=message)
        self.errors = errors


class SchemaRefused(Permanent):
    """The 500 without a reason: an applied field is not in the CRD's schema. ``path`` is that field."""

    def __init__(self, call: Call, sentence: str, *, status: int = 500, message: str = "", path: str) -> None:
        super().__init__(call, sentence, status=status, message=message)
        self.path = path


# ---- what we refuse ourselves -----------------------------------------------------------------------------


class WriteRefused(Permanent):
    """The portal itself refuses to write; nothing was sent."""


class ObserveOnly(WriteRefused):
    """The cluster is connected in observe mode, or is not connected: it is never written to."""


class ClusterPaused(WriteRefused):
    """Writing to this cluster is paused, or all writing is stopped (``WriteStop``, ``AIF_STOP_WRITES``)."""


class ClusterAbandoned(WriteRefused):
    """The cluster was given up; nothing is asked of it any more."""


class WrongCluster(Permanent):
    """The address answers, but as another cluster than the one that was connected."""


class ForeignObject(Permanent):
    """An object of this name is there that is not this owner's; it is not adopted. Nothing was written."""
