"""ValidatingAdmissionPolicies and their bindings, evaluated: the expressions are compiled and run as they stand.

What is done of ``admissionregistration.k8s.io/v1`` (k8s.io/apiserver, ``pkg/admission/plugin/policy/validating``):
resource rules, namespace selectors, match conditions, variables, validations with their messages. Not done, and refused
when such a policy is applied: parameters, object selectors, excluded resources, audit annotations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings

from simulator.errors import ApiError, bad_value, forbidden, invalid, not_simulated
from simulator.kinds import NAMESPACE, POLICY, POLICY_BINDING, Kind, Obj
from simulator.objects import labels_of, name_of, namespace_of
from simulator.options import Options
from simulator.selectors import matches
from simulator.store import Store

_NAMES = ("object", "oldObject", "request", "namespaceObject", "variables")


@lru_cache(maxsize=4096)
def _compiled(expression: str) -> cel.Expression:
    env = cel.NewEnv(
        variables=dict.fromkeys(_NAMES, cel.Type.DYN),
        extensions=[ext_strings.ExtStrings(2), ext_optional.ExtOptional()],
    )
    return env.compile(expression)


def check_policy(kind: Kind, obj: Obj) -> None:
    """422 if a policy's expressions don't compile; 501 for what is not simulated."""
    if kind != POLICY:
        return
    spec = obj.get("spec") or {}
    for name in ("paramKind", "auditAnnotations"):
        if spec.get(name):
            raise not_simulated(f"spec.{name} of a ValidatingAdmissionPolicy")
    for name in ("objectSelector", "excludeResourceRules", "namespaceSelector"):
        if (spec.get("matchConstraints") or {}).get(name):
            raise not_simulated(f"spec.matchConstraints.{name} of a ValidatingAdmissionPolicy")
    for path, expression in _expressions(spec):
        try:
            _compiled(expression)
        except Exception as error:
            problem = bad_value(path, expression, f"compilation failed: {error}")
            raise invalid(kind, name_of(obj), [problem]) from error


def _expressions(spec: Obj) -> Iterator[tuple[str, str]]:
    for name in ("matchConditions", "variables", "validations"):
        for index, row in enumerate(spec.get(name) or []):
            for field in ("expression", "messageExpression"):
                if row.get(field):
                    yield f"spec.{name}[{index}].{field}", row[field]


def check_policies(store: Store, kind: Kind, obj: Obj, old: Obj | None, options: Options) -> None:
    """403 or 422 if a bound policy denies the creation (`old` None) or the change of an object."""
    if kind in (POLICY, POLICY_BINDING):
        return
    for binding in sorted(store.objects(POLICY_BINDING), key=name_of):
        if "Deny" not in (binding["spec"].get("validationActions") or []):
            continue
        entry = store.get(POLICY, "", binding["spec"]["policyName"])
        if entry is not None and _concerns(store, entry.obj, binding, kind, obj, "UPDATE" if old else "CREATE"):
            _evaluate(store, entry.obj, binding, kind, obj, old, options)


def _concerns(store: Store, policy: Obj, binding: Obj, kind: Kind, obj: Obj, operation: str) -> bool:
    rules = policy["spec"]["matchConstraints"]["resourceRules"]
    if not any(
        kind.group in rule["apiGroups"]
        and kind.version in rule["apiVersions"]
        and kind.plural in rule["resources"]
        and operation in rule["operations"]
        for rule in rules
    ):
        return False
    selector = (binding["spec"].get("matchResources") or {}).get("namespaceSelector")
    if selector is None or not kind.namespaced:
        return True
    namespace = store.get(NAMESPACE, "", namespace_of(obj))
    return matches(selector, labels_of(namespace.obj) if namespace else {})


def _evaluate(store: Store, policy: Obj, binding: Obj, kind: Kind, obj: Obj, old: Obj | None, options: Options) -> None:
    namespace = store.get(NAMESPACE, "", namespace_of(obj)) if kind.namespaced else None
    values: dict[str, Any] = {
        "object": obj,
        "oldObject": old,
        "namespaceObject": namespace.obj if namespace else None,
        "request": {
            "operation": "UPDATE" if old else "CREATE",
            "namespace": namespace_of(obj),
            "name": name_of(obj),
            "dryRun": options.dry_run,
            "userInfo": {"username": options.user, "groups": list(options.groups)},
            "resource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
            "kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        },
        "variables": {},
    }
    spec, name = policy["spec"], name_of(policy)
    try:
        if not all(_value(row["expression"], values) for row in spec.get("matchConditions") or []):
            return
        for row in spec.get("variables") or []:
            values["variables"][row["name"]] = _value(row["expression"], values)
        for row in spec["validations"]:
            if _value(row["expression"], values) is not True:
                raise _denied(policy, binding, kind, obj, row, values)
    except ApiError:
        raise
    except Exception as error:
        if spec.get("failurePolicy", "Fail") == "Ignore":
            return
        why = f"ValidatingAdmissionPolicy '{name}' with binding '{name_of(binding)}' denied request: {error}"
        raise invalid_policy(kind, obj, why, "Invalid") from error


def _value(expression: str, values: dict[str, Any]) -> Any:
    return _compiled(expression).eval(data=values).plain_value()


def _denied(policy: Obj, binding: Obj, kind: Kind, obj: Obj, row: Obj, values: dict[str, Any]) -> ApiError:
    told = row.get("message") or f"failed expression: {row['expression']}"
    if row.get("messageExpression"):
        told = _value(row["messageExpression"], values)
    names = f"ValidatingAdmissionPolicy '{name_of(policy)}' with binding '{name_of(binding)}'"
    return invalid_policy(kind, obj, f"{names} denied request: {told}", row.get("reason", "Invalid"))


def invalid_policy(kind: Kind, obj: Obj, why: str, reason: str) -> ApiError:
    """A policy's refusal: 403 for the reason Forbidden, 422 otherwise."""
    error = forbidden(kind, name_of(obj), why)
    if reason != "Forbidden" and isinstance(error.body, dict):
        error.code = 422
        error.body |= {"code": 422, "reason": reason}
    return error
