"""Devices that are claimed rather than counted: a ResourceClaimTemplate (``resource.k8s.io/v1``) for each member.

Each pod gets a claim of its own; the selectors go along word for word, so that Kubernetes' allocator holds them too.
A template can't be changed once made, hence the digest of its content in its name; the former one is pruned.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from infra.names import workload_name
from infra.placement.model import ClaimKind, DeviceGrant
from tenants.manifest.tree import Member
from tenants.render.facts import LABEL_ENGINE, ReplicaFacts

POD_CLAIM = "devices"


def claim_template(
    facts: ReplicaFacts, engine: str, member: Member, grants: Sequence[DeviceGrant]
) -> dict[str, Any] | None:
    """The template for the grants that are claimed by DRA; None where there are none."""
    selectors = {ask.name: ask.selectors for ask in member.devices}
    requests = [
        {
            "name": grant.request,
            "exactly": {
                "deviceClassName": grant.device_class,
                "allocationMode": "ExactCount",
                "count": grant.count,
                "selectors": [{"cel": {"expression": text}} for text in selectors[grant.request]],
            },
        }
        for grant in grants
        if grant.claim is ClaimKind.DRA
    ]
    if not requests:
        return None
    digest = hashlib.sha256(json.dumps(requests, sort_keys=True).encode()).hexdigest()
    parts = (facts.deployment_name, str(facts.index), engine, member.role.value, str(facts.replica_id), digest)
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": workload_name(*parts),
            "namespace": facts.namespace,
            "labels": facts.labels | {LABEL_ENGINE: engine},
        },
        "spec": {"metadata": {"labels": facts.labels}, "spec": {"devices": {"requests": requests}}},
    }
