"""Who may do what: two users, an administrator and an observer who reads everything but secrets and logs."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.errors import bad_request, not_allowed, not_simulated, path_not_allowed
from simulator.kinds import READ_VERBS, Kind, Obj
from simulator.request import Request, Target

_HIDDEN = ("secrets", "pods/log", "pods/exec", "pods/attach", "pods/portforward")
REVIEWS = {
    "authorization.k8s.io": {
        "selfsubjectaccessreviews": "SelfSubjectAccessReview",
        "selfsubjectrulesreviews": "SelfSubjectRulesReview",
    },
    "authentication.k8s.io": {"selfsubjectreviews": "SelfSubjectReview"},
}


@dataclass(frozen=True)
class User:
    """A caller with its token."""

    name: str
    groups: tuple[str, ...]
    token: str
    writes: bool

    def may(self, verb: str, resource: str) -> bool:
        """True if the verb is allowed on the resource (`pods`, `pods/log`, ...)."""
        if self.writes:
            return True
        return verb in READ_VERBS and resource not in _HIDDEN


def check(user: User, verb: str, target: Target) -> None:
    """403 as RBAC words it."""
    if not user.may(verb, target.resource):
        raise not_allowed(user.name, verb, target.kind, target.namespace, target.name, target.sub)


def check_path(user: User, method: str, path: str) -> None:
    """403 for a path that is no resource and not to be written."""
    if not user.writes and method not in ("GET", "HEAD"):
        raise path_not_allowed(user.name, method.lower(), path)


def review(user: User, request: Request) -> Obj | None:
    """The answer to a self subject review, or None if the path is none."""
    parts = request.path.strip("/").split("/")
    if len(parts) != 4 or parts[0] != "apis" or parts[1] not in REVIEWS:
        return None
    kind = REVIEWS[parts[1]].get(parts[3])
    if kind is None:
        raise not_simulated(f"the kind {parts[3]} of {parts[1]}/{parts[2]}")
    if request.method != "POST":
        raise bad_request(f"{kind} is created with POST")
    body = request.data() or {}
    spec = body.get("spec") or {}
    out: Obj = {"kind": kind, "apiVersion": f"{parts[1]}/v1", "metadata": {"creationTimestamp": None}}
    if kind == "SelfSubjectReview":
        out["status"] = {"userInfo": {"username": user.name, "groups": list(user.groups)}}
        return out
    out["spec"] = spec
    if kind == "SelfSubjectRulesReview":
        out["status"] = _rules(user)
        return out
    out["status"] = _allowed(user, spec)
    return out


def _allowed(user: User, spec: Obj) -> Obj:
    asked = spec.get("resourceAttributes")
    if asked is None:
        path = spec.get("nonResourceAttributes") or {}
        fine = user.writes or path.get("verb") in ("get", "head")
    else:
        resource = asked.get("resource", "")
        if asked.get("subresource"):
            resource += f"/{asked['subresource']}"
        if resource == "*":
            fine = user.writes
        else:
            fine = user.may(asked.get("verb", ""), resource)
    if fine:
        binding = "cluster-admin" if user.writes else "portal-observe"
        reason = f'RBAC: allowed by ClusterRoleBinding "{binding}" of ClusterRole "{binding}" to User "{user.name}"'
        return {"allowed": True, "reason": reason}
    return {"allowed": False}


def _rules(user: User) -> Obj:
    if user.writes:
        resources = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        paths = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
    else:
        verbs = list(READ_VERBS)
        core = ["nodes", "namespaces", "pods", "services", "configmaps", "serviceaccounts", "events",
                "resourcequotas", "limitranges", "services/proxy", "pods/proxy"]  # fmt: skip
        resources = [{"verbs": verbs, "apiGroups": [""], "resources": core}]
        for group in ("apps", "batch", "networking.k8s.io", "rbac.authorization.k8s.io", "coordination.k8s.io",
                      "admissionregistration.k8s.io", "apiextensions.k8s.io"):  # fmt: skip
            resources.append({"verbs": verbs, "apiGroups": [group], "resources": ["*"]})
        paths = [{"verbs": ["get"], "nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/version", "/readyz"]}]
    return {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}


def success(kind: Kind, name: str, uid: str) -> Obj:
    """The Status that answers a DELETE."""
    details: Obj = {"name": name}
    if kind.group:
        details["group"] = kind.group
    details |= {"kind": kind.plural, "uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
