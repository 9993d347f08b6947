"""What a pod in a tenant's namespace may not be, and every policy together (see :mod:`infra.adapters.admission`)."""

from __future__ import annotations

from infra.adapters.admission_beside import SERVICES, VOLUMES, WORKLOADS
from infra.adapters.admission_cel import (
    ANNOTATIONS,
    LABELS,
    NAMESPACE,
    NEW,
    OLD_ANNOTATIONS,
    PINS,
    PREFIX,
    TRUSTED,
    Policy,
    Rule,
)

# Variables by which HAMi's library is told its limits, or is kept from being loaded, and those by which the container
# runtime is told which cards to hand out.
_GPU_ENV = (
    "['NVIDIA_VISIBLE_DEVICES', 'NVIDIA_MIG_CONFIG_DEVICES', 'NVIDIA_MIG_MONITOR_DEVICES', 'NVIDIA_IMEX_CHANNELS', "
    "'CUDA_DISABLE_CONTROL', 'CUDA_OVERSUBSCRIBE', 'CUDA_DEVICE_SM_LIMIT', 'CUDA_DEVICE_MEMORY_SHARED_CACHE', "
    "'CUDA_TASK_PRIORITY', 'GPU_CORE_UTILIZATION_POLICY', 'ACTIVE_OOM_KILLER', 'LD_PRELOAD', 'LD_AUDIT']"
)
_HAMIS_OWN = (
    "(e.name == 'NVIDIA_VISIBLE_DEVICES' && e.?value.orValue('') == 'none') || "
    "(e.name == 'GPU_CORE_UTILIZATION_POLICY' && e.?value.orValue('') == 'force') || "
    "(e.name == 'CUDA_TASK_PRIORITY' && e.?value.orValue('-') == "
    "string(c.?resources.?limits.orValue({})[?'nvidia.com/priority'].orValue('')))"
)
_SHARES = "['nvidia.com/gpumem', 'nvidia.com/gpumem-percentage', 'nvidia.com/gpucores']"
# What vCluster's network policy takes for a tenant cluster's control plane: the syncer renames this label of a tenant's
# pod (vCluster v0.36), so only somebody in its place would write it.
# Its policy for a snapshot's pods goes by a label that the syncer leaves as it is, so a tenant could write that one.
_CONTROL_PLANE = (
    f"['release', 'app'].filter(k, k in {LABELS} && (k == 'release' || {LABELS}[k] == 'vcluster-snapshot') && "
    f"('vcluster.loft.sh/managed-by' in {LABELS} || "
    "(variables.tenants_hand && request.namespace.startsWith('vc-'))))"
)
# What Kubernetes itself makes of an object or a claim. Everything else (nfs, iscsi, cephfs, csi, ...) has the kubelet
# reach a server or a disk that the pod names, past every network policy; nobody but the node's administrator may.
_PLAIN_VOLUME = " || ".join(
    f"has(v.{source})"
    for source in (
        "configMap", "downwardAPI", "emptyDir", "ephemeral", "hostPath", "image", "persistentVolumeClaim", "projected",
        "secret",
    )
)  # fmt: skip
# What the portal's quotas count, or what is no card at all: the rest a platform-admin has to name.
_MAY_ASK = (
    "!r.contains('/') || r in ['nvidia.com/gpu', 'nvidia.com/gpu.shared', 'nvidia.com/gpumem', "
    "'nvidia.com/gpumem-percentage', 'nvidia.com/gpucores', 'nvidia.com/priority'] || "
    f"r.startsWith('nvidia.com/mig-') || r.startsWith('{PREFIX}') || r in variables.resources || "
    "variables.resources.exists(p, p.endsWith('/') && r.startsWith(p))"
)
# Probes and hooks are the kubelet's own requests, from the node's address.
_ASKS_ELSEWHERE = " || ".join(
    f"c.?{asked}.?{how}.?host.orValue('') != ''"
    for asked in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle.?postStart", "lifecycle.?preStop")
    for how in ("httpGet", "tcpSocket")
)
_REMOTE_CODE = "(?i)(^|[^\\\\w-])--tru"


def _named(condition: str) -> str:
    """The names of the containers for which the condition on ``c`` holds."""
    return f"variables.all.filter(c, {condition}).map(c, c.name)"


PODS = Policy(
    "pods",
    (("", ["pods", "pods/ephemeralcontainers"]),),
    f"!has(object.metadata.deletionTimestamp) && ({NEW} || object.spec != oldObject.spec || "
    f"{LABELS} != oldObject.metadata.?labels.orValue({{}}) || {ANNOTATIONS} != {OLD_ANNOTATIONS})",
    (
        (
            "all",
            (
                "object.spec.containers + object.spec.?initContainers.orValue([]) + "
                "object.spec.?ephemeralContainers.orValue([])"
            ),
        ),
        ("trusted", TRUSTED),
        # Somebody of the tenant itself: its tenant cluster's syncer, or one of its people.
        (
            "tenants_hand",
            (
                "request.userInfo.username.startsWith('system:serviceaccount:' + request.namespace + ':') || "
                "request.userInfo.?groups.orValue([]).exists(g, g.startsWith('aifactory:'))"
            ),
        ),
        ("registries", f"{NAMESPACE}[?'{PREFIX}image-registries'].orValue('').split(',')"),
        ("platform_images", f"{NAMESPACE}[?'{PREFIX}platform-images'].orValue('').split(',').filter(p, p != '')"),
        # Images are mounted as volumes too.
        (
            "paths",
            (
                "variables.all.map(c, c.?image.orValue('')) + object.spec.?volumes.orValue([])"
                ".filter(v, has(v.image)).map(v, v.image.?reference.orValue(''))"
            ),
        ),
        # docker.io is what an image without a registry is from, library/ where it has no owner either.
        (
            "full_paths",
            (
                "variables.paths.map(i, i.split('@')[0]).map(p, p.contains('/') && (p.split('/')[0].contains('.') || "
                "p.split('/')[0].contains(':') || p.split('/')[0] == 'localhost') ? p : "
                "'docker.io/' + (p.contains('/') ? p : 'library/' + p))"
            ),
        ),
        (
            "repositories",
            (
                "variables.full_paths.map(p, p.lastIndexOf(':') > p.lastIndexOf('/') ? "
                "p.substring(0, p.lastIndexOf(':')) : p)"
                ".filter(r, !variables.platform_images.exists(a, r == a || r.startsWith(a + '/')))"
            ),
        ),
        (
            "unpinned",
            (
                "variables.paths.filter(i, !i.contains('@sha256:')).filter(i, !variables.platform_images.exists(a, "
                "i == a || i.startsWith(a + '/') || i.startsWith(a + ':') || ('docker.io/' + i).startsWith(a + '/') || "
                "('docker.io/library/' + i).startsWith(a + ':')))"
            ),
        ),
    ),
    (
        Rule(
            "host-path",
            "object.spec.?volumes.orValue([]).filter(v, has(v.hostPath)).map(v, v.name)",
            "these volumes are files of the node",
            "Use an emptyDir or a PersistentVolumeClaim instead of hostPath.",
        ),
        Rule(
            "volume-types",
            f"object.spec.?volumes.orValue([]).filter(v, !({_PLAIN_VOLUME})).map(v, v.name)",
            "for these volumes the node itself would reach a server or a disk that the pod names, past the network "
            "policies",
            "Use an emptyDir or a PersistentVolumeClaim of a StorageClass of the cluster.",
        ),
        Rule(
            "privileged",
            _named("c.?securityContext.?privileged.orValue(false)"),
            "these containers are privileged",
            "Leave securityContext.privileged out.",
        ),
        Rule(
            "host-namespaces",
            "(object.spec.?hostNetwork.orValue(false) ? ['hostNetwork'] : []) + "
            "(object.spec.?hostPID.orValue(false) ? ['hostPID'] : []) + "
            "(object.spec.?hostIPC.orValue(false) ? ['hostIPC'] : [])",
            "the pod would share namespaces of the node",
            "Leave these fields of the pod's spec out.",
        ),
        Rule(
            "host-ports",
            _named("c.?ports.orValue([]).exists(p, p.?hostPort.orValue(0) != 0)"),
            "these containers take ports of the node",
            "Leave hostPort out and use a Service.",
        ),
        Rule(
            "probe-hosts",
            _named(_ASKS_ELSEWHERE),
            "probes or hooks of these containers have the node ask another host than the pod, past network policies",
            "Leave host out: then it is the pod itself.",
        ),
        Rule(
            "capabilities",
            _named(
                "c.?securityContext.?capabilities.?add.orValue([]).exists(x, !(x in ['AUDIT_WRITE', 'CHOWN', "
                "'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'KILL', 'NET_BIND_SERVICE', 'SETFCAP', 'SETGID', 'SETPCAP', "
                "'SETUID', 'SYS_CHROOT']))"
            ),
            "these containers add capabilities that reach beyond them",
            "Leave them out of securityContext.capabilities.add (MKNOD too: it makes device files).",
        ),
        Rule(
            "gpu-env",
            f"variables.all.map(c, c.?env.orValue([]).filter(e, e.name in {_GPU_ENV} || "
            f"e.name.startsWith('CUDA_DEVICE_MEMORY_LIMIT')).filter(e, !({_HAMIS_OWN})).map(e, c.name + ': ' + e.name))"
            ".filter(l, size(l) > 0).map(l, l.join(', '))",
            "these variables say which cards a container sees and how far its share is limited; the platform sets them",
            "Leave them out; ask for cards or a share under resources.limits.",
        ),
        Rule(
            "hami-webhook",
            f"'hami.io/webhook' in {LABELS} ? ['hami.io/webhook'] : []",
            "this label would take the pod out of HAMi's hands, and so out of its share",
            "Leave the label out.",
        ),
        Rule(
            "control-plane-label",
            _CONTROL_PLANE,
            "with these labels the pod would pass for a part of a tenant cluster's control plane, which has a way out "
            "of its own",
            "Leave them out, or choose another value of app.",
        ),
        Rule(
            "quota-not-enforced",
            f"{NEW} && {NAMESPACE}[?'{PREFIX}quota-enforced'].orValue('') == 'false' ? "
            + _named("c.?resources.?limits.orValue({}).exists(r, r.startsWith('nvidia.com/'))")
            + " : []",
            "these containers ask for cards, and the cluster does not hold the namespace's quota against them yet",
            "Try again in a moment: the namespace opens as soon as its quota is enforced.",
        ),
        Rule(
            "scheduler",
            "object.spec.?schedulerName.orValue('default-scheduler') in variables.schedulers ? [] : "
            "[object.spec.schedulerName]",
            "this scheduler is not one of the platform's",
            "Leave schedulerName out.",
        ),
        Rule(
            "hami-scheduler",
            "object.spec.?schedulerName.orValue('default-scheduler') in variables.share_schedulers ? [] : "
            + _named(f"{_SHARES}.exists(r, r in c.?resources.?limits.orValue({{}}))"),
            "these containers ask for a share of a card, but the pod does not go through HAMi's scheduler, which keeps "
            "shares apart",
            "Leave schedulerName out, so that HAMi's webhook sets it; a cluster without HAMi has no shares.",
        ),
        Rule(
            "tenant-share",
            f"{NEW} && variables.tenants_hand ? "
            + _named(f"{_SHARES}.exists(r, r in c.?resources.?limits.orValue({{}}))")
            + " : []",
            "these containers ask for a share of a card, and only the portal chooses one that no other zone holds",
            "Ask for whole cards, or have the portal deploy it.",
        ),
        Rule(
            "uncounted-devices",
            _named(
                "(c.?resources.?limits.orValue({}).map(r, r) + c.?resources.?requests.orValue({}).map(r, r))"
                f".exists(r, !({_MAY_ASK}))"
            )
            + f" + ({NEW} && !variables.trusted ? object.spec.?resourceClaims.orValue([]).map(k, k.name) : [])",
            "these ask for devices that no quota counts here",
            "Ask for nvidia.com/gpu; a platform-admin can open other resources (AIF_TENANT_RESOURCES).",
        ),
        Rule(
            "gpu-pin",
            f"({NEW} ? !variables.trusted : variables.tenants_hand) ? {ANNOTATIONS}.filter(k, {PINS})"
            f".filter(k, {NEW} || {ANNOTATIONS}[?k] != {OLD_ANNOTATIONS}[?k]) : []",
            "these annotations name cards, or claim to be HAMi's own record",
            "Leave them out: the platform says which cards are whose.",
        ),
        Rule(
            "node-name",
            f"{NEW} && object.spec.?nodeName.orValue('') != '' ? [object.spec.nodeName] : []",
            "a pod may not name its node: it would pass every scheduler by",
            "Leave nodeName out; use nodeSelector or affinity.",
        ),
        Rule(
            "tolerations",
            "object.spec.?tolerations.orValue([]).map(t, t.?key.orValue('*') == '' ? '*' : t.?key.orValue('*'))"
            f".filter(k, !(k in variables.allowed_tolerations || k.startsWith('{PREFIX}')))",
            "these taints are not for tenants' pods to tolerate (* = every taint)",
            "Leave the tolerations out; nodes for tenants need none.",
        ),
        Rule(
            "runtime-class",
            "object.spec.?runtimeClassName.orValue('') == '' || object.spec.runtimeClassName in "
            "variables.runtime_classes ? [] : [object.spec.runtimeClassName]",
            "this runtime class is not open to tenants",
            "Leave runtimeClassName out.",
        ),
        Rule(
            "priority-class",
            "object.spec.?priorityClassName.orValue('') == '' || object.spec.priorityClassName in "
            "variables.priority_classes || object.spec.?priority.orValue(1) <= 0 ? [] : "
            "[object.spec.priorityClassName]",
            "with this priority class the pod could drive others' pods out",
            "Leave priorityClassName out.",
        ),
        Rule(
            "extra-networks",
            f"['k8s.v1.cni.cncf.io/networks', 'v1.multus-cni.io/default-network'].filter(k, k in {ANNOTATIONS})",
            "these annotations put the pod on networks that no network policy covers",
            "Leave them out.",
        ),
        Rule(
            "ephemeral-containers",
            "object.spec.?ephemeralContainers.orValue([]).map(c, c.name)",
            "containers that are added to a running pod pass HAMi and the quota by",
            "Run a pod of your own to look into it.",
        ),
        Rule(
            "image-registry",
            f"'{PREFIX}image-registries' in {NAMESPACE} ? variables.repositories.filter(r, "
            "!variables.registries.exists(a, a != '' && (r == a || r.startsWith(a + '/')))) : []",
            "images are not from the registries that this tenant may use",
            "Push them there, or ask a platform-admin for another registry.",
        ),
        Rule(
            "image-digest",
            f"{NAMESPACE}[?'{PREFIX}pin-image-digests'].orValue('') == 'true' ? variables.unpinned : []",
            "images are given without a digest, which this tenant must pin",
            "Add @sha256:… to them.",
        ),
        Rule(
            "remote-code",
            f"{NAMESPACE}[?'{PREFIX}allow-remote-code'].orValue('true') == 'true' ? [] : "
            + _named(
                f"(c.?command.orValue([]) + c.?args.orValue([])).exists(t, t.matches('{_REMOTE_CODE}')) || "
                "c.?env.orValue([]).exists(e, e.name.matches('(?i)TRUST_REMOTE_CODE') || "
                f"e.?value.orValue('').matches('{_REMOTE_CODE}'))"
            ),
            "these containers would run code from a model's repository, which this tenant may not",
            "Leave --trust-remote-code out, or ask a platform-admin to allow it.",
        ),
    ),
)

POLICIES = (PODS, SERVICES, WORKLOADS, VOLUMES)
