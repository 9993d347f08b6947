"""What a pod in a tenant's namespace may not be: rules as ValidatingAdmissionPolicies of the cluster itself.

The objects are those of ``admissionregistration.k8s.io/v1`` (Kubernetes 1.30 and later). They are bound to the
namespaces that carry our label; who may label namespaces is a matter of the cluster's own rights. What a tenant may
run is read from annotations of its namespace, so that one policy holds for all tenants.

What HAMi itself adds to a pod passes (HAMi v2.9, ``pkg/device/nvidia/device.go``: ``NVIDIA_VISIBLE_DEVICES=none`` for
containers without a card, ``CUDA_TASK_PRIORITY`` equal to the container's ``nvidia.com/priority``, its core policy, its
runtime class and its scheduler's name; the scheduler and the device plugin write ``hami.io/`` annotations later).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from infra.adapters.admission_cel import PREFIX, Policy, Rule
from infra.adapters.admission_rules import POLICIES

Manifest = dict[str, Any]

API = "admissionregistration.k8s.io/v1"
NAME_PREFIX = "aifactory-"
TENANT_LABEL = PREFIX + "tenant"
MANAGED_LABEL = ("app.kubernetes.io/managed-by", "aifactory-portal")
PROBE_LABEL = PREFIX + "probe"


@dataclass(frozen=True, slots=True)
class AdmissionFacts:
    """What differs from cluster to cluster.

    ``portal_user``: our own name there, as the API server tells it; the only user beside Kubernetes' controllers that
    may say on which card a pod goes. The rest are allow-lists; tolerations by their taint's key, ``resources``
    (devices beside NVIDIA's) by name or, ending in a slash, by what it begins with.
    """

    portal_user: str
    schedulers: tuple[str, ...] = ("default-scheduler", "hami-scheduler")
    share_schedulers: tuple[str, ...] = ("hami-scheduler",)
    runtime_classes: tuple[str, ...] = ("nvidia",)
    priority_classes: tuple[str, ...] = ()
    tolerations: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    controllers: tuple[str, ...] = ("system:serviceaccount:lws-system:",)


def admission_objects(facts: AdmissionFacts) -> list[Manifest]:
    """The policies with their bindings, in the order in which they are applied."""
    return [made for policy in POLICIES for made in (_policy(policy, facts), _binding(policy))]


def namespace_annotations(
    *,
    registries: Iterable[str] | None,
    pin_digests: bool,
    allow_remote_code: bool,
    platform_images: Iterable[str] = (),
) -> dict[str, str]:
    """What a tenant may run, as the policies read it from its namespace.

    Args:
        registries: registries or repositories (``ghcr.io``, ``docker.io/vllm``); None: any.
        platform_images: the platform's own (a tenant cluster's control plane): free of both rules.
    """
    found = {PREFIX + "pin-image-digests": _flag(pin_digests), PREFIX + "allow-remote-code": _flag(allow_remote_code)}
    if registries is not None:
        found[PREFIX + "image-registries"] = _joined(registries)
    if images := _joined(platform_images):
        found[PREFIX + "platform-images"] = images
    return found


def quota_annotation(enforced: bool) -> dict[str, str]:
    """Whether the cluster counts pods against every key of the namespace's ResourceQuota.

    It does not from the start, and what asks for cards before then is refused. A namespace that says nothing of it was
    made before there was this rule, and is not held up.
    """
    return {PREFIX + "quota-enforced": _flag(enforced)}


def rules() -> list[Rule]:
    """Every rule, by policy."""
    return [rule for policy in POLICIES for rule in policy.rules]


def refused_by(policy: str, said: str) -> str:
    """The id of the rule of ours that refused; "" = it was none of ours.

    Args:
        policy: the policy's name in the API server's refusal; said: the message after it.
    """
    name, bracket, _ = said.removeprefix("[").partition("]")
    ours = policy.startswith(NAME_PREFIX) and said.startswith("[") and bool(bracket)
    return name if ours and any(name == rule.id for rule in rules()) else ""


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _joined(values: Iterable[str]) -> str:
    return ",".join(sorted({value.strip().rstrip("/") for value in values} - {""}))


def _policy(policy: Policy, facts: AdmissionFacts) -> Manifest:
    lists: Mapping[str, Iterable[str]] = {
        "schedulers": facts.schedulers,
        "share_schedulers": facts.share_schedulers,
        "runtime_classes": facts.runtime_classes,
        "priority_classes": facts.priority_classes,
        "allowed_tolerations": facts.tolerations,
        "resources": facts.resources,
        "trusted_users": (facts.portal_user, "system:kube-controller-manager"),
        "trusted_prefixes": ("system:serviceaccount:kube-system:", *facts.controllers),
    }
    text = json.dumps([policy.variables, [rule.offenders for rule in policy.rules]])
    variables = [
        {"name": name, "expression": json.dumps(sorted(set(values) - {""}))}
        for name, values in lists.items()
        if f"variables.{name}" in text
    ]
    variables += [{"name": name, "expression": expression} for name, expression in policy.variables]
    variables += [{"name": rule.variable, "expression": rule.offenders} for rule in policy.rules]
    spec: Manifest = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": names}
                for group, names in policy.resources
            ]
        },
        "matchConditions": [{"name": "changed", "expression": policy.condition}],
        "variables": variables,
        "validations": [_validation(rule) for rule in policy.rules],
    }
    return {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": NAME_PREFIX + policy.name},
        "spec": spec,
    }


def _validation(rule: Rule) -> Manifest:
    name = "object.metadata.?name.orValue(object.metadata.?generateName.orValue(''))"
    told = f"{json.dumps(f'[{rule.id}] ')} + {name} + {json.dumps(': ' + rule.what + ' (')}"
    told += f" + variables.{rule.variable}.join(', ') + {json.dumps('). ' + rule.remedy)}"
    return {
        "expression": f"size(variables.{rule.variable}) == 0",
        "message": f"[{rule.id}] {rule.what}. {rule.remedy}",
        "messageExpression": told,
        "reason": "Forbidden",
    }


def _binding(policy: Policy) -> Manifest:
    key, value = MANAGED_LABEL
    selector = {"matchLabels": {key: value}, "matchExpressions": [{"key": TENANT_LABEL, "operator": "Exists"}]}
    return {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": NAME_PREFIX + policy.name},
        "spec": {
            "policyName": NAME_PREFIX + policy.name,
            "validationActions": ["Deny", "Audit"],
            "matchResources": {"namespaceSelector": selector},
        },
    }
