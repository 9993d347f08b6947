"""An answer that is no success → its class (:mod:`infra.kube.errors`).

The formats are those of kube-apiserver 1.35 (``metav1.Status`` and a few plain-text bodies); each was
recorded from a running server, see ``tests/data/recorded``. HTTP status and ``reason`` are not enough: three
kinds of 403 share one reason, a policy's refusal is a 422, an unknown field in server-side apply a 500.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.kube.decoding import loads
from infra.kube.errors import (
    AlreadyExists,
    ApiMissing,
    ApplyConflict,
    Call,
    EvictionBlocked,
    FieldConflict,
    FieldError,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NamespaceTerminating,
    NotFound,
    Permanent,
    PolicyRefused,
    QuotaRefused,
    Retryable,
    SchemaRefused,
    StaleWrite,
    Unauthorized,
    clean,
)

# Quantities hold no spaces. With them a message that somebody made for it would be read in as many ways as it has
# beginnings, and what a tenant cluster's events say its administrators write.
_QUOTA = re.compile(
    r"exceeded quota: (?P<quota>[^,:]+), requested: (?P<requested>\S+), "
    r"used: (?P<used>\S+), limited: (?P<limited>\S+)"
)
_QUOTA_UNSPECIFIED = re.compile(r"failed quota: (?P<quota>[^:]+): must specify (?P<what>.+)$")
_RBAC = re.compile(r'User "[^"]*" cannot (?P<verb>\S+) (?:resource|path) "(?P<resource>[^"]*)"')
_POLICY = re.compile(r"ValidatingAdmissionPolicy '(?P<policy>[^']+)' with binding '[^']+' denied request: (?P<said>.+)")
_WEBHOOK = re.compile(r'admission webhook "(?P<policy>[^"]+)" denied the request:? ?(?P<said>.*)')
_POD_SECURITY = re.compile(r'violates (?P<policy>PodSecurity "[^"]+"): (?P<said>.+)')
_MANAGER = re.compile(r'conflict with "(?P<manager>[^"]*)"')
_LONGEST_MESSAGE = 4096
"""Characters of a message that are looked at; more would only cost time."""
_LONGEST_WAIT = 24 * 3600
_UNDECLARED = re.compile(r"(?P<path>\.\S+): field not declared in schema")


@dataclass(frozen=True)
class ExceededQuota:
    """What the API server's quota admission said: quantities by resource name, as it wrote them."""

    quota: str
    requested: Mapping[str, str]
    used: Mapping[str, str]
    limited: Mapping[str, str]


def exceeded_quota(message: str) -> ExceededQuota | None:
    """The refusal of a ResourceQuota in a message (an error's, or an event's); ``None`` where it is none."""
    quota = _QUOTA.search(message[:_LONGEST_MESSAGE])
    if quota is None:
        return None
    asked, used, limit = (_quantities(quota[name]) for name in ("requested", "used", "limited"))
    return ExceededQuota(quota["quota"], asked, used, limit)


def classify(status: int, headers: Mapping[str, str], body: bytes, call: Call) -> KubeError:
    """The error that an HTTP answer means. ``headers`` are looked up without regard to case."""
    answer = _status_object(body)
    if answer is None:
        text = body[:2000].decode("utf-8", "replace")
        return _without_status(status, text, _retry_after(headers, {}), call)
    return _with_status(answer, status, _retry_after(headers, answer), call)


def classify_status(answer: Mapping[str, Any], call: Call) -> KubeError:
    """The error of a ``Status`` object that came in a stream (an ERROR line of a watch)."""
    return _with_status(answer, _int(answer.get("code")) or 500, _retry_after({}, answer), call)


def is_status(body: bytes) -> bool:
    """Whether the body is the API server's own ``Status`` object."""
    return _status_object(body) is not None


def _status_object(body: bytes) -> dict[str, Any] | None:
    try:
        answer = loads(body)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) and answer.get("kind") == "Status" else None


def _mapping(value: object) -> Mapping[str, Any]:
    """Behind the API server's proxy anything may call itself a ``Status``: its parts need not have their shapes."""
    return value if isinstance(value, dict) else {}


def _int(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _retry_after(headers: Mapping[str, str], answer: Mapping[str, Any]) -> float | None:
    """Seconds; a date in the header is not used by API servers and counts as not said."""
    value = next((value for key, value in headers.items() if key.lower() == "retry-after"), None)
    if value is not None and value.isascii() and value.strip().isdigit():
        return float(value)
    seconds = _mapping(answer.get("details")).get("retryAfterSeconds")
    return float(seconds) if isinstance(seconds, int | float) and 0 <= seconds <= _LONGEST_WAIT else None


def _retryable(
    call: Call,
    sentence: str,
    *,
    status: int,
    message: str,
    retry_after: float | None,
    cls: type[Retryable] = Retryable,
) -> Retryable:
    error = cls(call, sentence, status=status, message=message)
    error.retry_after = retry_after
    return error


def _without_status(status: int, text: str, retry_after: float | None, call: Call) -> KubeError:
    """Answers that are not a ``Status``: overload, an unknown API group, and whatever stands in between."""
    said = clean(text)
    if status == 429:
        return _retryable(
            call,
            f"Cluster {call.cluster} is overloaded and put off {call.verb} of {call.what}. It is tried "
            "again by itself.",
            status=status,
            message=said,
            retry_after=retry_after,
        )
    if status == 404:
        return ApiMissing(
            call,
            f"Cluster {call.cluster} has no API for {call.what}. Install what provides it (its CRD), or "
            "check that the address in the kubeconfig is that of a Kubernetes API server.",
            status=status,
            message=said,
        )
    if status == 401:
        return _unauthorized(call, status, said)
    if status == 403:
        return Forbidden(
            call,
            f"Something before the API server of cluster {call.cluster} refused {call.verb} of {call.what}: {said}",
            status=status,
            message=said,
        )
    if status >= 500 and status != 501:
        return _retryable(
            call,
            f"Cluster {call.cluster} could not {call.verb} {call.what} (HTTP {status}: {said}). It is tried "
            "again by itself.",
            status=status,
            message=said,
            retry_after=retry_after,
        )
    if 300 <= status < 400:
        sentence = (
            f"The address of cluster {call.cluster} answers with a redirect. Credentials are not sent "
            "elsewhere: put the API server's own address into the kubeconfig."
        )
        return Permanent(call, sentence, status=status, message=said)
    return Permanent(
        call,
        f"Cluster {call.cluster} refused to {call.verb} {call.what} (HTTP {status}: {said}).",
        status=status,
        message=said,
    )


def _with_status(answer: Mapping[str, Any], status: int, retry_after: float | None, call: Call) -> KubeError:
    message = str(answer.get("message") or "")[:_LONGEST_MESSAGE]
    reason = str(answer.get("reason") or "")
    details = _mapping(answer.get("details"))
    listed = details.get("causes")
    causes = [cause for cause in (listed if isinstance(listed, list) else []) if isinstance(cause, dict)]
    match status:
        case 401:
            return _unauthorized(call, status, message)
        case 403:
            return _forbidden(call, status, message, causes)
        case 404:
            return _not_found(call, status, message, details)
        case 409:
            return _conflict(call, status, message, reason, causes)
        case 410:
            token = str(_mapping(answer.get("metadata")).get("continue") or "")
            return Gone(
                call,
                f"Cluster {call.cluster} no longer has the version of {call.what} that was asked for; it is "
                "listed again.",
                status=status,
                message=message,
                continue_token=token,
            )
        case 429 if any(cause.get("reason") == "DisruptionBudget" for cause in causes):
            said = clean("; ".join(str(cause.get("message")) for cause in causes))
            return _retryable(
                call,
                f"Cluster {call.cluster} does not let {call.what} be evicted now: {said}. It is tried "
                "again; raise the replicas or change the PodDisruptionBudget if it must move.",
                status=status,
                message=message,
                retry_after=retry_after,
                cls=EvictionBlocked,
            )
        case 400 | 403 | 422 | 413:
            return _policy(call, status, message) or _invalid(call, status, message, causes)
        case 500 if undeclared := _UNDECLARED.search(message):
            path = undeclared["path"]
            return SchemaRefused(
                call,
                f"Cluster {call.cluster} does not know the field {path} of {call.what}: the CRD installed "
                "there has no such field. Install the version of the CRD that the manifest was written for.",
                status=status,
                message=message,
                path=path,
            )
    if status == 429 or (status >= 500 and status != 501):
        return _retryable(
            call,
            f"Cluster {call.cluster} could not {call.verb} {call.what} now "
            f"({clean(message) or f'HTTP {status}'}). It is tried again by itself.",
            status=status,
            message=message,
            retry_after=retry_after,
        )
    return _policy(call, status, message) or Permanent(
        call,
        f"Cluster {call.cluster} refused to {call.verb} {call.what}: {clean(message) or f'HTTP {status}'}",
        status=status,
        message=message,
    )


def _unauthorized(call: Call, status: int, message: str) -> Unauthorized:
    return Unauthorized(
        call,
        f"Cluster {call.cluster} does not accept the portal's credentials. They expired or were withdrawn: "
        "rotate the cluster's kubeconfig.",
        status=status,
        message=message,
    )


def _forbidden(call: Call, status: int, message: str, causes: list[dict[str, Any]]) -> KubeError:
    if any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
        return NamespaceTerminating(
            call,
            f"Namespace {call.namespace or call.name} on cluster {call.cluster} is being deleted, so "
            f"{call.what} can't be written. It is tried again when the namespace is gone; if that never "
            "ends, a finalizer holds it.",
            status=status,
            message=message,
        )
    if found := exceeded_quota(message):
        asked, used, limit = found.requested, found.used, found.limited
        numbers = "; ".join(
            f"{resource}: asked {amount}, used {used.get(resource, '?')}, limit {limit.get(resource, '?')}"
            for resource, amount in asked.items()
        )
        return QuotaRefused(
            call,
            f"The ResourceQuota {found.quota} on cluster {call.cluster} does not hold {call.what} "
            f"({numbers}). It is tried again; ask for less, free some, or raise the quota there.",
            status=status,
            message=message,
            quota=found.quota,
            requested=asked,
            used=used,
            limited=limit,
        )
    if quota := _QUOTA_UNSPECIFIED.search(message):
        return PolicyRefused(
            call,
            f"The ResourceQuota {quota['quota']} on cluster {call.cluster} wants {call.what} to specify "
            f"{clean(quota['what'])}. Add it to the manifest or a default to the namespace's LimitRange.",
            status=status,
            message=message,
            policy=f"ResourceQuota {quota['quota']}",
        )
    if lacking := _RBAC.search(message):
        return Forbidden(
            call,
            f"The portal's credentials on cluster {call.cluster} may not {lacking['verb']} "
            f"{lacking['resource']} (asked for {call.what}). Bind the ClusterRole of the cluster's mode, "
            "observe or manage, to them.",
            status=status,
            message=message,
        )
    return _policy(call, status, message) or PolicyRefused(
        call,
        f"Admission on cluster {call.cluster} refused {call.what}: {clean(message)}",
        status=status,
        message=message,
        policy="admission",
    )


def _quantities(text: str) -> dict[str, str]:
    """``a=1,b=2`` as the quota plugin writes it."""
    pairs = (pair.partition("=") for pair in text.split(","))
    return {key.strip(): value.strip() for key, _, value in pairs if key.strip()}


def _not_found(call: Call, status: int, message: str, details: Mapping[str, Any]) -> KubeError:
    if not details.get("name"):
        # "the server could not find the requested resource": the kind, not an object of it.
        return _without_status(status, message, None, call)
    missing = f"{details.get('kind') or call.kind} {details['name']}"
    return NotFound(
        call,
        f"Cluster {call.cluster} has no {missing} (asked for {call.what}).",
        status=status,
        message=message,
    )


def _conflict(call: Call, status: int, message: str, reason: str, causes: list[dict[str, Any]]) -> KubeError:
    conflicts = tuple(
        FieldConflict(_manager(str(cause.get("message") or "")), str(cause.get("field") or ""))
        for cause in causes
        if cause.get("reason") == "FieldManagerConflict"
    )
    if conflicts:
        by_manager: dict[str, list[str]] = {}
        for conflict in conflicts:
            by_manager.setdefault(conflict.manager, []).append(conflict.field)
        whose = "; ".join(f"{manager} owns {', '.join(fields)}" for manager, fields in sorted(by_manager.items()))
        return ApplyConflict(
            call,
            f"Fields of {call.what} on cluster {call.cluster} belong to somebody else: {clean(whose)}. Let "
            "that tool give them up, or take them out of our manifest.",
            status=status,
            message=message,
            conflicts=conflicts,
        )
    if reason == "AlreadyExists":
        return AlreadyExists(call, f"Cluster {call.cluster} has {call.what} already.", status=status, message=message)
    return _stale(call, status, message)


def _stale(call: Call, status: int, message: str) -> StaleWrite:
    return StaleWrite(
        call,
        f"{call.what} on cluster {call.cluster} changed since it was read. It is read and tried again.",
        status=status,
        message=message,
    )


def _manager(message: str) -> str:
    found = _MANAGER.search(message)
    return found["manager"] if found else "an unnamed manager"


def _policy(call: Call, status: int, message: str) -> PolicyRefused | None:
    for pattern, kind in ((_POLICY, "policy"), (_WEBHOOK, "admission webhook"), (_POD_SECURITY, "standard")):
        if found := pattern.search(message):
            return PolicyRefused(
                call,
                f"The {kind} {found['policy']} on cluster {call.cluster} refused {call.what}: {clean(found['said'])}",
                status=status,
                message=found["said"],
                policy=found["policy"],
            )
    return None


def _invalid(call: Call, status: int, message: str, causes: list[dict[str, Any]]) -> KubeError:
    if causes and all(cause.get("field") == "metadata.uid" for cause in causes):
        # How a patch that names a UID is told that the object is another one by now.
        return _stale(call, status, message)
    errors = tuple(
        FieldError(str(cause.get("field") or ""), clean(str(cause.get("message") or ""))) for cause in causes
    )
    where = "; ".join(f"{error.field}: {error.message}" for error in errors if error.field) or clean(message)
    return Invalid(
        call,
        f"Cluster {call.cluster} found {call.what} invalid: {where}",
        status=status,
        message=message,
        errors=errors,
    )
