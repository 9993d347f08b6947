"""What makes an object invalid (422), as far as a portal can run into it."""

from __future__ import annotations

import re

from simulator import quantity
from simulator.errors import FieldError, bad_value, invalid, prohibited, required
from simulator.kinds import Kind, Obj
from simulator.objects import labels_of, name_of
from simulator.selectors import matches

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")

_SUBDOMAIN_WHY = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_WHY = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SERVICE_WHY = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation "
    "is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_VALUE_WHY = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
    "validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_KEY_WHY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_FREE_NAMES = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
_WITH_TEMPLATE = {"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"}
_NATIVE = ("cpu", "memory", "ephemeral-storage", "hugepages-")


def check_new(kind: Kind, obj: Obj) -> None:
    """Raise ApiError 422 if the object may not be created as it is."""
    _refuse(kind, obj, [*_metadata(kind, obj), *_spec(kind, obj)])


def check_change(kind: Kind, old: Obj, new: Obj) -> None:
    """Raise ApiError 422 if the object may not be changed so."""
    problems = [*_metadata(kind, new), *_spec(kind, new)]
    if kind.kind in ("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet"):
        if old["spec"].get("selector") != new["spec"].get("selector"):
            problems.append(bad_value("spec.selector", new["spec"].get("selector"), "field is immutable"))
    elif kind.kind == "Job":
        problems += [
            bad_value(f"spec.{field}", new["spec"].get(field), "field is immutable")
            for field in ("selector", "template", "completionMode")
            if old["spec"].get(field) != new["spec"].get(field)
        ]
    elif kind.kind == "Pod" and _frozen(old) != _frozen(new):
        problems.append(
            prohibited(
                "spec",
                "pod updates may not change fields other than `spec.containers[*].image`,"
                "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to "
                "existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
                "previously negative)",
            )
        )
    elif kind.kind in ("ConfigMap", "Secret") and old.get("immutable"):
        if old.get("data") != new.get("data") or not new.get("immutable"):
            problems.append(prohibited("data", "field is immutable when `immutable` is set"))
    elif kind.kind in ("RoleBinding", "ClusterRoleBinding") and old.get("roleRef") != new.get("roleRef"):
        problems.append(bad_value("roleRef", new.get("roleRef"), "cannot change roleRef"))
    before = set(old["metadata"].get("finalizers") or [])
    if old["metadata"].get("deletionTimestamp"):
        added = sorted(set(new["metadata"].get("finalizers") or []) - before)
        if added:
            why = f"no new finalizers can be added if the object is being deleted, found new finalizers {added}"
            problems.append(prohibited("metadata.finalizers", why))
    _refuse(kind, new, problems)


def _refuse(kind: Kind, obj: Obj, problems: list[FieldError]) -> None:
    if problems:
        raise invalid(kind, name_of(obj), problems)


def _metadata(kind: Kind, obj: Obj) -> list[FieldError]:
    problems: list[FieldError] = []
    name = name_of(obj)
    if not name:
        problems.append(required("metadata.name", "name or generateName is required"))
    elif kind.kind == "Namespace":
        if not _LABEL.fullmatch(name) or len(name) > 63:
            problems.append(bad_value("metadata.name", name, _LABEL_WHY))
    elif kind.kind == "Service":
        if not _SERVICE.fullmatch(name) or len(name) > 63:
            problems.append(bad_value("metadata.name", name, _SERVICE_WHY))
    elif kind.kind not in _FREE_NAMES:
        if not _SUBDOMAIN.fullmatch(name):
            problems.append(bad_value("metadata.name", name, _SUBDOMAIN_WHY))
        elif len(name) > 253:
            problems.append(bad_value("metadata.name", name, "must be no more than 253 bytes"))
    problems += _labels("metadata.labels", labels_of(obj))
    for key in obj["metadata"].get("annotations") or {}:
        if not _key_holds(key.lower()):
            problems.append(bad_value("metadata.annotations", key, _KEY_WHY))
    return problems


def _key_holds(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and (not _SUBDOMAIN.fullmatch(prefix) or len(prefix) > 253):
        return False
    return bool(_NAME_PART.fullmatch(name)) and len(name) <= 63


def _labels(where: str, labels: Obj) -> list[FieldError]:
    problems = []
    for key, value in labels.items():
        if not _key_holds(key):
            problems.append(bad_value(where, key, _KEY_WHY))
        if not isinstance(value, str):
            problems.append(bad_value(where, value, "must be a string"))
        elif len(value) > 63:
            problems.append(bad_value(where, value, "must be no more than 63 bytes"))
        elif not _VALUE.fullmatch(value):
            problems.append(bad_value(where, value, _VALUE_WHY))
    return problems


def _spec(kind: Kind, obj: Obj) -> list[FieldError]:
    spec = obj.get("spec") or {}
    if kind.kind == "Pod":
        return _pod_spec("spec", spec)
    if kind.kind == "Service":
        return _service(spec)
    if kind.kind not in (*_WITH_TEMPLATE, "Job"):
        return []
    problems: list[FieldError] = []
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    problems += _labels("spec.template.labels", labels)
    if kind.kind in _WITH_TEMPLATE:
        selector = spec.get("selector")
        if not selector:
            problems.append(required("spec.selector"))
        elif not matches(selector, labels):
            why = "`selector` does not match template `labels`"
            problems.append(bad_value("spec.template.metadata.labels", labels, why))
    for field in ("replicas", "parallelism", "completions"):
        if isinstance(spec.get(field), int) and spec[field] < 0:
            problems.append(bad_value(f"spec.{field}", spec[field], "must be greater than or equal to 0"))
    policy = (template.get("spec") or {}).get("restartPolicy")
    if kind.kind == "Job" and policy == "Always":
        why = 'Unsupported value: "Always": supported values: "OnFailure", "Never"'
        problems.append(FieldError("spec.template.spec.restartPolicy", "FieldValueNotSupported", why))
    if kind.kind != "Job" and policy != "Always":
        why = f'Unsupported value: "{policy}": supported values: "Always"'
        problems.append(FieldError("spec.template.spec.restartPolicy", "FieldValueNotSupported", why))
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    if kind.kind == "Deployment" and _zero(rolling.get("maxSurge")) and _zero(rolling.get("maxUnavailable")):
        where = "spec.strategy.rollingUpdate.maxUnavailable"
        problems.append(bad_value(where, rolling["maxUnavailable"], "may not be 0 when `maxSurge` is 0"))
    return problems + _pod_spec("spec.template.spec", _with_claims(template.get("spec") or {}, spec))


def _with_claims(pods: Obj, spec: Obj) -> Obj:
    """The pods of a StatefulSet get a volume for each of its claims."""
    claims = [{"name": one["metadata"]["name"]} for one in spec.get("volumeClaimTemplates") or []]
    return {**pods, "volumes": [*(pods.get("volumes") or []), *claims]} if claims else pods


def _zero(value: object) -> bool:
    return value in (0, "0", "0%")


def _pod_spec(where: str, spec: Obj) -> list[FieldError]:
    problems: list[FieldError] = []
    if not spec.get("containers"):
        problems.append(required(f"{where}.containers"))
    names: set[str] = set()
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or []):
            at = f"{where}.{group}[{index}]"
            name = str(container.get("name", ""))
            if not name:
                problems.append(required(f"{at}.name"))
            elif not _LABEL.fullmatch(name) or len(name) > 63:
                problems.append(bad_value(f"{at}.name", name, _LABEL_WHY))
            elif name in names:
                problems.append(FieldError(f"{at}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"'))
            names.add(name)
            if not container.get("image") and where != "spec.template.spec":
                problems.append(required(f"{at}.image"))
            problems += _resources(at, container)
            problems += _mounts(at, container, spec)
    return problems


def _mounts(at: str, container: Obj, spec: Obj) -> list[FieldError]:
    known = {volume.get("name") for volume in spec.get("volumes") or []}
    return [
        FieldError(f"{at}.volumeMounts[{i}].name", "FieldValueNotFound", f'Not found: "{mount.get("name")}"')
        for i, mount in enumerate(container.get("volumeMounts") or [])
        if mount.get("name") not in known
    ]


def _resources(at: str, container: Obj) -> list[FieldError]:
    problems: list[FieldError] = []
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, text in requests.items():
        where = f"{at}.resources.requests"
        if name in limits:
            asked, limit = quantity.parse(text), quantity.parse(limits[name])
            if not name.startswith(_NATIVE) and asked != limit:
                problems.append(bad_value(where, text, f"must be equal to {name} limit of {limits[name]}"))
            elif asked > limit:
                why = f"must be less than or equal to {name} limit of {limits[name]}"
                problems.append(bad_value(where, text, why))
        elif not name.startswith(_NATIVE) and "/" in name:
            problems.append(
                FieldError(
                    f"{at}.resources.limits",
                    "FieldValueRequired",
                    f'Required value: Limit must be set for non overcommitable resources ("{name}")',
                )
            )
    for group, values in (("limits", limits), ("requests", requests)):
        for name, text in values.items():
            value = quantity.parse(text)
            if value < 0:
                problems.append(
                    bad_value(f"{at}.resources.{group}[{name}]", text, "must be greater than or equal to 0")
                )
            elif "/" in name and value.denominator != 1:
                problems.append(bad_value(f"{at}.resources.{group}[{name}]", text, "must be an integer"))
    return problems


def _service(spec: Obj) -> list[FieldError]:
    if not spec.get("ports") and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        return [required("spec.ports")]
    many = len(spec.get("ports") or []) > 1
    return [
        required(f"spec.ports[{index}].name")
        for index, port in enumerate(spec.get("ports") or [])
        if many and not port.get("name")
    ]


def _frozen(pod: Obj) -> Obj:
    spec = {k: v for k, v in pod["spec"].items() if k not in ("tolerations", "activeDeadlineSeconds", "nodeName")}
    for group in ("initContainers", "containers"):
        if spec.get(group):
            spec[group] = [{k: v for k, v in c.items() if k != "image"} for c in spec[group]]
    if not pod["spec"].get("nodeName"):
        for loose in ("schedulingGates", "nodeSelector", "affinity"):
            spec.pop(loose, None)
    else:
        spec["nodeName"] = pod["spec"]["nodeName"]
    return spec
