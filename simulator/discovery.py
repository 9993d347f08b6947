"""What a client asks to learn the server: versions, groups, resources."""

from __future__ import annotations

from simulator.access import REVIEWS
from simulator.errors import not_simulated, page_not_found
from simulator.kinds import READ_VERBS, WRITE_VERBS, Kind, KindTable, Obj

_SUBRESOURCES: dict[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    "pods": (
        ("binding", "Binding", ("create",)),
        ("eviction", "Eviction", ("create",)),
        ("log", "Pod", ("get",)),
        ("proxy", "PodProxyOptions", ("get",)),
    ),
    "services": (("proxy", "ServiceProxyOptions", ("get",)),),
    "serviceaccounts": (("token", "TokenRequest", ("create",)),),
    "namespaces": (("finalize", "Namespace", ("update",)),),
}


def version(git_version: str) -> Obj:
    """/version."""
    major, minor = git_version.lstrip("v").split(".")[:2]
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": git_version,
        "gitCommit": "0" * 40,
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "go1.26.8",
        "compiler": "gc",
        "platform": "linux/amd64",
    }


def document(path: str, kinds: KindTable, absent: frozenset[str], server: str) -> Obj | None:
    """The discovery document behind a path, or None if the path is none."""
    parts = path.strip("/").split("/")
    if path.rstrip("/") == "/api":
        return {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server}],
        }
    groups = {group: versions for group, versions in kinds.groups().items() if group}
    groups |= {group: ["v1"] for group in REVIEWS}
    if path.rstrip("/") == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(g, v) for g, v in groups.items()]}
    if parts[0] == "api" and len(parts) == 2:
        return _resources("", parts[1], kinds)
    if parts[0] == "apis" and len(parts) in (2, 3):
        if parts[1] in absent and parts[1] not in groups:  # a CustomResourceDefinition may have brought it
            raise page_not_found()
        if parts[1] not in groups or (len(parts) == 3 and parts[2] not in groups[parts[1]]):
            raise not_simulated(f"the API group {'/'.join(parts[1:])}")
        if len(parts) == 2:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], groups[parts[1]])}
        return _resources(parts[1], parts[2], kinds)
    return None


def _group(name: str, versions: list[str]) -> Obj:
    rows = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": rows, "preferredVersion": rows[0]}


def _resources(group: str, version: str, kinds: KindTable) -> Obj:
    rows: list[Obj] = []
    for kind in kinds:
        if kind.group == group and kind.version == version:
            rows += _rows(kind)
    for plural, name in REVIEWS.get(group, {}).items():
        rows.append(
            {"name": plural, "singularName": name.lower(), "namespaced": False, "kind": name, "verbs": ["create"]}
        )
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": rows}


def _rows(kind: Kind) -> list[Obj]:
    verbs = sorted([*READ_VERBS, *WRITE_VERBS])
    row: Obj = {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": verbs,
    }
    if kind.short:
        row["shortNames"] = list(kind.short)
    rows = [row]

    def sub(name: str, of_kind: str, sub_verbs: tuple[str, ...]) -> Obj:
        return {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": of_kind,
            "verbs": list(sub_verbs),
        }

    if kind.status:
        rows.append(sub("status", kind.kind, ("get", "patch", "update")))
    if kind.scale:
        rows.append({**sub("scale", "Scale", ("get", "patch", "update")), "group": "autoscaling", "version": "v1"})
    for name, of_kind, sub_verbs in _SUBRESOURCES.get(kind.plural, ()):
        rows.append(sub(name, of_kind, sub_verbs))
    return rows
