"""Pods that are never to be: sent as a dry run into a namespace of ours, to see which of a cluster's guards refuse.

The API server carries a dry run through admission and stores nothing (``dryRun=All``); webhooks are asked if they say
that they have no side effects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.adapters.admission import PROBE_LABEL

Manifest = dict[str, Any]

NAMESPACE = "aifactory-probe"
RESOURCE = "aifactory.dev/probe"
"""An extended resource that no node has, of which the namespace's quota holds none."""

_IMAGE = "registry.k8s.io/pause:3.10"


def probe_namespace(labels: Mapping[str, str]) -> list[Manifest]:
    """The namespace for the dry runs, labelled as a tenant's (``labels``), and a quota of nothing in it."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": {**labels, PROBE_LABEL: "true"}},
        },
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "aifactory-quota", "namespace": NAMESPACE},
            "spec": {"hard": {f"requests.{RESOURCE}": "0", "services.loadbalancers": "0", "services.nodeports": "0"}},
        },
    ]


def good_pod(**container: Any) -> Manifest:
    """A pod that breaks nothing; ``container``: more of its container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "namespace": NAMESPACE},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "main",
                    "image": _IMAGE,
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    **container,
                }
            ],
        },
    }


def pod_for_policies() -> Manifest:
    """Refused by our rule ``hami-webhook`` and by nothing else."""
    pod = good_pod()
    pod["metadata"]["labels"] = {"hami.io/webhook": "ignore"}
    return pod


def pod_for_pod_security() -> Manifest:
    """Refused by the Pod Security Standard "baseline"; our own policies would do it later in the chain."""
    pod = good_pod()
    pod["spec"]["volumes"] = [{"name": "node", "hostPath": {"path": "/"}}]
    return pod


def pod_for_quota() -> Manifest:
    """Refused by the namespace's quota."""
    return good_pod(resources={"limits": {RESOURCE: "1"}, "requests": {RESOURCE: "1"}})


def pod_for_hami() -> Manifest:
    """A share of a card: HAMi's webhook gives it to HAMi's scheduler, else our rule ``hami-scheduler`` refuses it."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}
    return good_pod(resources={"limits": limits, "requests": limits})
