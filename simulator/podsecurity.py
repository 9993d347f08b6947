"""Pod Security admission: the levels `baseline` and `restricted`, as far as rendered workloads can break them.

After the Pod Security Standards (kubernetes.io/docs/concepts/security/pod-security-standards) and the wording of
k8s.io/pod-security-admission."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from simulator.defaults import containers_of
from simulator.errors import forbidden
from simulator.kinds import NAMESPACE, POD, Obj
from simulator.objects import labels_of, name_of, namespace_of
from simulator.store import Store

_ENFORCE = "pod-security.kubernetes.io/enforce"
_ALLOWED_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip


def check_pod_security(store: Store, pod: Obj) -> None:
    """403 if the pod violates the level that its namespace enforces."""
    namespace = store.get(NAMESPACE, "", namespace_of(pod))
    labels = labels_of(namespace.obj) if namespace else {}
    level = labels.get(_ENFORCE, "privileged")
    found: list[str] = []
    if level in ("baseline", "restricted"):
        found += _baseline(pod["spec"])
    if level == "restricted":
        found += _restricted(pod["spec"])
    if found:
        version = labels.get(f"{_ENFORCE}-version", "latest")
        raise forbidden(POD, name_of(pod), f'violates PodSecurity "{level}:{version}": {", ".join(found)}')


def _named(names: list[str]) -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"container {quoted}" if len(names) == 1 else f"containers {quoted}"


def _baseline(spec: Obj) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield f"host namespaces ({field}=true)"
    paths = [v["name"] for v in spec.get("volumes") or [] if "hostPath" in v]
    if paths:
        yield f"hostPath volumes (volume{'s' if len(paths) > 1 else ''} " + ", ".join(f'"{p}"' for p in paths) + ")"
    names = [c["name"] for c in containers_of(spec) if (c.get("securityContext") or {}).get("privileged")]
    if names:
        yield f"privileged ({_named(names)} must not set securityContext.privileged=true)"
    names = [c["name"] for c in containers_of(spec) if any(p.get("hostPort") for p in c.get("ports") or [])]
    if names:
        yield f"hostPort ({_named(names)} uses hostPort)"


def _restricted(spec: Obj) -> Iterator[str]:
    if names := _lacking(spec, _may_escalate):
        yield (
            f"allowPrivilegeEscalation != false ({_named(names)} must set "
            "securityContext.allowPrivilegeEscalation=false)"
        )
    if names := _lacking(spec, _keeps_capabilities):
        yield f'unrestricted capabilities ({_named(names)} must set securityContext.capabilities.drop=["ALL"])'
    bad = [v["name"] for v in spec.get("volumes") or [] if not (set(v) - {"name"}) <= _ALLOWED_VOLUMES]
    if bad:
        yield "restricted volume types (" + ", ".join(f'volume "{name}"' for name in bad) + ")"
    if names := _lacking(spec, _may_be_root):
        yield f"runAsNonRoot != true (pod or {_named(names)} must set securityContext.runAsNonRoot=true)"
    if names := _lacking(spec, _without_seccomp):
        yield (
            f"seccompProfile (pod or {_named(names)} must set securityContext.seccompProfile.type to "
            '"RuntimeDefault" or "Localhost")'
        )


def _lacking(spec: Obj, test: Callable[[Obj, Obj], bool]) -> list[str]:
    """The containers for which the test (own security context, the pod's) holds."""
    whole = spec.get("securityContext") or {}
    return [c["name"] for c in containers_of(spec) if test(c.get("securityContext") or {}, whole)]


def _may_escalate(own: Obj, _whole: Obj) -> bool:
    return own.get("allowPrivilegeEscalation") is not False


def _keeps_capabilities(own: Obj, _whole: Obj) -> bool:
    return "ALL" not in ((own.get("capabilities") or {}).get("drop") or [])


def _may_be_root(own: Obj, whole: Obj) -> bool:
    return not own.get("runAsNonRoot", whole.get("runAsNonRoot"))


def _without_seccomp(own: Obj, whole: Obj) -> bool:
    profile = own.get("seccompProfile") or whole.get("seccompProfile") or {}
    return profile.get("type") not in ("RuntimeDefault", "Localhost")
