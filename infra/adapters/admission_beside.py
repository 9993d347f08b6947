"""The rules beside those on pods: services, workloads' templates, volumes and claims."""

from __future__ import annotations

from infra.adapters.admission_cel import ANNOTATIONS, LABELS, NEW, PINS, PREFIX, TRUSTED, Policy, Rule

SERVICES = Policy(
    "services",
    (("", ["services"]),),
    "!has(object.metadata.deletionTimestamp)",
    (),
    (
        Rule(
            "service-type",
            "object.spec.?type.orValue('ClusterIP') in ['LoadBalancer', 'NodePort'] ? [object.spec.type] : []",
            "a Service of this type opens a way in from outside the cluster",
            "Use type ClusterIP; models are reached through the gateway.",
        ),
        Rule(
            "external-ips",
            "object.spec.?externalIPs.orValue([])",
            "a Service may not take over addresses",
            "Leave externalIPs out.",
        ),
        Rule(
            "dns-names",
            f"{ANNOTATIONS}.filter(k, k.startsWith('external-dns.'))",
            "these annotations would have names published in the platform's own zones",
            "Leave them out.",
        ),
    ),
)

WORKLOADS = Policy(
    "workloads",
    (
        ("", ["replicationcontrollers"]),
        ("apps", ["daemonsets", "deployments", "replicasets", "statefulsets"]),
        ("batch", ["cronjobs", "jobs"]),
    ),
    "!has(object.metadata.deletionTimestamp)",
    (
        ("trusted", TRUSTED),
        (
            "pins",
            (
                "(has(object.spec.jobTemplate) ? "
                "object.spec.jobTemplate.?spec.?template.?metadata.?annotations.orValue({})"
                " : object.spec.?template.?metadata.?annotations.orValue({}))"
            ),
        ),
        (
            "old_pins",
            (
                f"{NEW} ? {{}} : (has(oldObject.spec.jobTemplate) ? "
                "oldObject.spec.jobTemplate.?spec.?template.?metadata.?annotations.orValue({})"
                " : oldObject.spec.?template.?metadata.?annotations.orValue({}))"
            ),
        ),
    ),
    (
        Rule(
            "workload-gpu-pin",
            f"variables.trusted ? [] : variables.pins.filter(k, {PINS})"
            ".filter(k, variables.pins[?k] != variables.old_pins[?k])",
            "these annotations of the pod template name cards, or claim to be HAMi's own record",
            "Leave them out: the platform says which cards are whose.",
        ),
    ),
)

VOLUMES = Policy(
    "volumes",
    (("", ["persistentvolumeclaims", "persistentvolumes"]),),
    "!has(object.metadata.deletionTimestamp)",
    (("volume", "request.resource.resource == 'persistentvolumes'"),),
    (
        # A PersistentVolume is in no namespace, so the binding can't tell whose it is: its label or its maker does.
        Rule(
            "volume-host-path",
            f"variables.volume && (has(object.spec.hostPath) || has(object.spec.local)) && "
            f"('vcluster.loft.sh/managed-by' in {LABELS} || '{PREFIX}tenant' in {LABELS} || "
            "request.userInfo.username.startsWith('system:serviceaccount:vc-')) ? [object.metadata.name] : []",
            "a tenant's volume may not be files of a node",
            "Use a StorageClass of the cluster.",
        ),
        Rule(
            "claim-by-name",
            f"!variables.volume && {NEW} ? "
            "(object.spec.?volumeName.orValue('') != '' ? [object.spec.volumeName] : []) + "
            "(has(object.spec.selector) ? ['selector'] : []) : []",
            "a claim may not pick a volume by its name or labels: it may hold somebody else's data",
            "Leave volumeName and selector out and name a StorageClass.",
        ),
    ),
)
