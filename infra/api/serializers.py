"""The fleet as JSON. Kubeconfigs go in and never come out."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from infra.models import Cluster, GPUType, NamespaceClaim, Node, NodePool, Site, WatchTarget


class ConditionSerializer(serializers.Serializer[dict[str, Any]]):
    """A condition, with Kubernetes' names."""

    type = serializers.CharField()
    status = serializers.ChoiceField(choices=["True", "False", "Unknown"])
    reason = serializers.CharField()
    message = serializers.CharField()
    observedGeneration = serializers.IntegerField()  # noqa: N815  # Kubernetes' name
    lastTransitionTime = serializers.DateTimeField(allow_null=True)  # noqa: N815


class SiteSerializer(serializers.ModelSerializer[Site]):
    """A data centre."""

    class Meta:
        model = Site
        fields = ["id", "slug", "name", "created_at"]


class NewSiteSerializer(serializers.Serializer[Any]):
    """A site to make."""

    slug = serializers.CharField(max_length=40)
    name = serializers.CharField(max_length=120, required=False, allow_blank=True)


class ChangedSiteSerializer(serializers.Serializer[Any]):
    """What can be changed of a site."""

    name = serializers.CharField(max_length=120)


class WatchSerializer(serializers.ModelSerializer[WatchTarget]):
    """How far a cluster's watch is: everything before ``watermark`` is known."""

    class Meta:
        model = WatchTarget
        fields = ["resource", "watermark", "lease_owner", "failures", "last_error"]


class ClusterSerializer(serializers.ModelSerializer[Cluster]):
    """A connected cluster."""

    site = serializers.SlugRelatedField[Site](slug_field="slug", read_only=True)
    conditions = ConditionSerializer(many=True, read_only=True)
    watches = WatchSerializer(many=True, read_only=True, source="watch_targets")

    class Meta:
        model = Cluster
        fields = [
            "id",
            "slug",
            "name",
            "site",
            "mode",
            "paused",
            "labels",
            "taints",
            "system_namespaces",
            "api_server",
            "credential_expires_at",
            "credential_issued_at",
            "kubernetes_version",
            "conditions",
            "watches",
            "last_seen_at",
            "abandoned_at",
            "abandoned_reason",
            "created_at",
        ]


class NewClusterSerializer(serializers.Serializer[Any]):
    """A cluster to connect: it is probed before the answer."""

    slug = serializers.CharField(max_length=40)
    name = serializers.CharField(max_length=120, required=False, allow_blank=True)
    site = serializers.CharField(max_length=40, help_text="Slug of the site.")
    mode = serializers.ChoiceField(choices=Cluster.Mode.choices, default=Cluster.Mode.OBSERVE)
    kubeconfig = serializers.CharField(max_length=200_000, write_only=True, trim_whitespace=False)
    labels = serializers.DictField(child=serializers.CharField(max_length=63, allow_blank=True), required=False)
    taints = serializers.ListField(child=serializers.DictField(), required=False)
    system_namespaces = serializers.ListField(child=serializers.CharField(max_length=63), required=False)


class ChangedClusterSerializer(serializers.Serializer[Any]):
    """What can be changed of a cluster."""

    name = serializers.CharField(max_length=120, required=False)
    site = serializers.CharField(max_length=40, required=False)
    labels = serializers.DictField(child=serializers.CharField(max_length=63, allow_blank=True), required=False)
    taints = serializers.ListField(child=serializers.DictField(), required=False)
    system_namespaces = serializers.ListField(child=serializers.CharField(max_length=63), required=False)


class ModeSerializer(serializers.Serializer[Any]):
    """The mode to set."""

    mode = serializers.ChoiceField(choices=Cluster.Mode.choices)


class KubeconfigSerializer(serializers.Serializer[Any]):
    """New credentials of the same cluster."""

    kubeconfig = serializers.CharField(max_length=200_000, write_only=True, trim_whitespace=False)


class AbandonSerializer(serializers.Serializer[Any]):
    """Why a cluster is given up."""

    reason = serializers.CharField(max_length=2000)


class AbandonedSerializer(serializers.Serializer[Any]):
    """A cluster that was given up, and what was left on it."""

    cluster = ClusterSerializer()
    leftovers = serializers.ListField(child=serializers.CharField())


class GPUTypeSerializer(serializers.ModelSerializer[GPUType]):
    """A kind of card."""

    class Meta:
        model = GPUType
        fields = ["id", "slug", "name", "driver", "memory_mib", "compute_slices", "attributes", "capacity", "source"]


class NodePoolSerializer(serializers.ModelSerializer[NodePool]):
    """Nodes with the same card, handed out the same way."""

    gpu_type = serializers.SlugRelatedField[GPUType](slug_field="slug", read_only=True)

    class Meta:
        model = NodePool
        fields = ["id", "name", "gpu_type", "sharing", "zone_id", "node_selector", "declared_nodes"]


class NodeSerializer(serializers.ModelSerializer[Node]):
    """A node with cards."""

    pool = serializers.SlugRelatedField[NodePool](slug_field="name", read_only=True)

    class Meta:
        model = Node
        fields = [
            "id",
            "name",
            "pool",
            "ready",
            "unschedulable",
            "cards",
            "unavailable_cards",
            "unavailable_reason",
            "allocatable",
            "first_seen_at",
        ]


class RightSerializer(serializers.Serializer[Any]):
    """One right. ``command`` gives it, for a shell; empty where it is held or not wanted."""

    verb = serializers.CharField()
    resource = serializers.CharField()
    why = serializers.CharField()
    need = serializers.ChoiceField(choices=["required", "optional", "not needed"])
    held = serializers.BooleanField()
    command = serializers.CharField(allow_blank=True)


class RightsSerializer(serializers.Serializer[Any]):
    """What credentials may do on a cluster, right by right."""

    mode = serializers.CharField()
    subject = serializers.CharField(allow_blank=True, help_text="Who the cluster says we are; empty: it did not say.")
    complete = serializers.BooleanField()
    could_write = serializers.BooleanField()
    rights = RightSerializer(many=True)


class PreflightSerializer(serializers.Serializer[Any]):
    """A kubeconfig to check."""

    kubeconfig = serializers.CharField(max_length=200_000, write_only=True, trim_whitespace=False)
    mode = serializers.ChoiceField(choices=Cluster.Mode.choices, default=Cluster.Mode.OBSERVE)


class PreflightedSerializer(serializers.Serializer[Any]):
    """What the cluster said of itself, and of the credentials."""

    version = serializers.CharField()
    identity = serializers.CharField()
    rights = RightsSerializer()


class ClusterRightsSerializer(serializers.Serializer[Any]):
    """The last check of a connected cluster's rights; null: it is being asked."""

    checked_at = serializers.DateTimeField(allow_null=True)
    rights = RightsSerializer(allow_null=True)


class ClaimSerializer(serializers.ModelSerializer[NamespaceClaim]):
    """Whose a namespace is, from when to when."""

    cluster = serializers.SlugRelatedField[Cluster](slug_field="slug", read_only=True)

    class Meta:
        model = NamespaceClaim
        fields = [
            "id",
            "cluster",
            "namespace",
            "tenant_id",
            "cost_code",
            "source",
            "rule",
            "inferred",
            "valid_from",
            "valid_to",
            "created_by",
            "created_at",
        ]


class NewClaimSerializer(serializers.Serializer[Any]):
    """A namespace to give to a tenant, from an instant on (it may lie in the past)."""

    cluster = serializers.CharField(max_length=40)
    namespace = serializers.CharField(max_length=63)
    tenant_id = serializers.UUIDField()
    valid_from = serializers.DateTimeField()
    cost_code = serializers.CharField(max_length=60, required=False, allow_blank=True)


class ClaimEndSerializer(serializers.Serializer[Any]):
    """When a claim ends."""

    valid_to = serializers.DateTimeField()


class UnmappedSerializer(serializers.Serializer[Any]):
    """A namespace with GPU pods that no tenant pays for."""

    cluster = serializers.CharField()
    namespace = serializers.CharField()
    pods = serializers.IntegerField()
    live = serializers.IntegerField()


class ManifestSerializer(serializers.Serializer[Any]):
    """A manifest of ``modelplane.ai/v1alpha1``: InferenceClass or InferenceCluster."""

    apiVersion = serializers.CharField()  # noqa: N815  # the manifest's names
    kind = serializers.ChoiceField(choices=["InferenceClass", "InferenceCluster"])
    metadata = serializers.DictField()
    spec = serializers.DictField()


class ManifestAppliedSerializer(serializers.Serializer[Any]):
    """What applying a manifest did."""

    kind = serializers.CharField()
    name = serializers.CharField()
    pools = serializers.ListField(child=serializers.CharField())
    notes = serializers.ListField(child=serializers.CharField())
