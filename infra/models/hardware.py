"""GPU types, pools, nodes, cards, and what was in service when."""

from django.db import models
from django.db.models.functions import Now

from infra.models.clusters import Cluster
from portal.kernel.scoping import Global


class SharingMode(models.TextChoices):
    """How the cards of a node are handed out."""

    WHOLE = "whole", "whole cards"
    HAMI = "hami", "HAMi shares"
    MIG = "mig", "MIG slices"
    TIMESLICE = "timeslice", "time-sliced"


class GPUType(Global):
    """A kind of card: what a CEL selector sees, and the figures that shares are made of.

    ``attributes`` and ``capacity`` have the shape of a device in Kubernetes' DRA API (``resource.k8s.io/v1``):
    ``{"architecture": {"string": "Hopper"}}`` and ``{"memory": {"value": "81559Mi"}}``.
    """

    class Source(models.TextChoices):
        DISCOVERED = "discovered", "GPU feature discovery"
        MANIFEST = "manifest", "InferenceClass manifest"
        MANUAL = "manual", "entered by hand"

    slug = models.SlugField(max_length=63, unique=True)
    name = models.CharField(max_length=120, help_text="As the driver names it: NVIDIA H100 80GB HBM3.")
    product = models.CharField(
        max_length=120, blank=True, help_text="The label nvidia.com/gpu.product of its nodes; empty until seen."
    )
    driver = models.CharField(max_length=253, default="gpu.nvidia.com")
    memory_mib = models.PositiveBigIntegerField(help_text="Physical memory of one card, MiB.")
    compute_slices = models.PositiveSmallIntegerField(
        default=7, help_text="MIG compute slices of a full card (A100, H100: 7; A30: 4); 0: no MIG."
    )
    attributes = models.JSONField(default=dict, blank=True)
    capacity = models.JSONField(default=dict, blank=True)
    source = models.CharField(max_length=12, choices=Source.choices, default=Source.DISCOVERED)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["slug"]
        constraints = [
            models.UniqueConstraint(fields=["product"], condition=~models.Q(product=""), name="gpu_type_product_unique")
        ]

    def __str__(self) -> str:
        return self.slug


class InferenceClass(Global):
    """A hardware recipe by name (``modelplane.ai/v1alpha1``): which devices a node of it has, and how many.

    ``devices`` is the manifest's ``spec.devices`` with its defaults filled in; ``gpu_type`` the kind of its cards.
    """

    name = models.CharField(max_length=63, unique=True)
    description = models.TextField(blank=True)
    gpu_type = models.ForeignKey(GPUType, on_delete=models.PROTECT, null=True, blank=True, related_name="classes")
    devices = models.JSONField(default=list)
    generation = models.PositiveBigIntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class NodePool(Global):
    """Nodes of one cluster with the same kind of card, handed out in the same way."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="pools")
    name = models.CharField(max_length=63)
    gpu_type = models.ForeignKey(GPUType, on_delete=models.PROTECT, null=True, related_name="pools")
    sharing = models.CharField(max_length=10, choices=SharingMode.choices, default=SharingMode.WHOLE)
    zone_id = models.UUIDField(null=True, blank=True, help_text="Set: kept for the tenants of this trust zone.")
    inference_class = models.ForeignKey(
        InferenceClass, on_delete=models.PROTECT, null=True, blank=True, related_name="pools"
    )
    node_selector = models.JSONField(default=dict, blank=True)
    declared_nodes = models.PositiveIntegerField(null=True, blank=True, help_text="From a manifest; unset: unknown.")
    devices = models.JSONField(
        default=list, blank=True, help_text="Devices of a node as its InferenceClass says (cards, network cards, …)."
    )
    overcommit_percent = models.PositiveIntegerField(
        null=True, blank=True, help_text="HAMi: memory handed out of each card, percent, as declared; unset: as seen."
    )

    class Meta:
        ordering = ["cluster", "name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="node_pool_unique")]

    def __str__(self) -> str:
        return f"{self.cluster_id}/{self.name}"


class Node(Global):
    """A node as last seen. A node made again under its name has another uid, and is another row."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="nodes")
    pool = models.ForeignKey(NodePool, on_delete=models.SET_NULL, null=True, related_name="nodes")
    name = models.CharField(max_length=253)
    uid = models.CharField(max_length=64)
    ready = models.BooleanField(null=True, help_text="Condition Ready: True, False, or unknown.")
    unschedulable = models.BooleanField(default=False)
    taints = models.JSONField(default=list, blank=True)
    labels = models.JSONField(default=dict, blank=True, help_text="By allow-list.")
    allocatable = models.JSONField(default=dict, blank=True, help_text="Kubernetes quantities, as strings.")
    capacity = models.JSONField(default=dict, blank=True)
    cards = models.PositiveIntegerField(default=0, help_text="Physical cards.")
    unavailable_cards = models.PositiveIntegerField(default=0)
    unavailable_reason = models.CharField(max_length=200, blank=True)
    mig_profile = models.CharField(
        max_length=32, blank=True, help_text="Strategy single: what one nvidia.com/gpu of the node is, as 1g.18gb."
    )
    lease_renewed_at = models.DateTimeField(null=True, blank=True)
    boot_id = models.CharField(max_length=64, blank=True, help_text="Changes with each start of the machine.")
    resource_version = models.CharField(max_length=40, blank=True)
    digest = models.CharField(
        max_length=64, blank=True, help_text="Of what was read of it: the same again is no change. Empty: read anew."
    )
    first_seen_at = models.DateTimeField()
    gone_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["cluster", "name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "uid"], name="node_unique")]
        indexes = [models.Index(fields=["cluster", "name"], name="node_by_name")]

    def __str__(self) -> str:
        return self.name


class Device(Global):
    """A physical card whose identity is known (HAMi's register, DCGM)."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="devices")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="devices")
    uuid = models.CharField(max_length=80)
    index = models.PositiveSmallIntegerField(default=0)
    memory_mib = models.PositiveBigIntegerField(help_text="Physical memory, MiB.")
    register_memory_mib = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="HAMi's devmem, MiB; more than physical where memory is scaled."
    )
    register_cores = models.PositiveIntegerField(null=True, blank=True, help_text="HAMi's devcore, percent.")
    register_slots = models.PositiveIntegerField(
        null=True, blank=True, help_text="HAMi's count: how many pods may share the card."
    )
    healthy = models.BooleanField(default=True, help_text="False also while it is cordoned in HAMi.")
    first_seen_at = models.DateTimeField()
    gone_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["node", "index"]
        constraints = [models.UniqueConstraint(fields=["cluster", "uuid"], name="device_unique")]

    def __str__(self) -> str:
        return self.uuid


class CapacitySpan(Global):
    """Evidence: from ``started_at`` to ``ended_at`` a node had ``cards`` in service, some of them unavailable.

    One open row a node; any change of type, mode, cards or availability closes it and opens the next, so that
    rows of a node never overlap. ``unavailable_cards`` could not be handed out, whether somebody held them or not:
    what is held stays its holder's, unless ``lost``. ``changed_seq``: as in PodObservation.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="capacity_spans")
    gpu_type = models.ForeignKey(GPUType, on_delete=models.PROTECT, null=True, related_name="+")
    sharing = models.CharField(max_length=10, choices=SharingMode.choices)
    zone_id = models.UUIDField(null=True, blank=True)
    cards = models.PositiveIntegerField()
    unavailable_cards = models.PositiveIntegerField(default=0)
    reason = models.CharField(max_length=200, blank=True)
    unavailable_devices = models.JSONField(
        default=list, blank=True, help_text="UUIDs of the unavailable cards, as far as they are known."
    )
    lost = models.BooleanField(default=False, help_text="Ready was Unknown: tenants' clocks stand still.")
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    overcommit_percent = models.PositiveIntegerField(
        default=100, help_text="HAMi: memory handed out of each card, percent of what it has."
    )
    mig_profile = models.CharField(
        max_length=32, blank=True, help_text="MIG, strategy single: what one nvidia.com/gpu of the node was."
    )
    timeslice_replicas = models.PositiveIntegerField(
        default=1, help_text="Time-slicing: how many pods shared a card of the node."
    )
    mig_layout = models.JSONField(
        default=dict, blank=True, help_text='MIG: profile → its instances on the node; "": cards that were not cut.'
    )
    source = models.CharField(max_length=12, default="watch")
    changed_seq = models.BigIntegerField(default=0)
    began_seq = models.BigIntegerField(
        null=True, blank=True, help_text="The change since which its state is what it is; empty: not known."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["node"], condition=models.Q(ended_at__isnull=True), name="capacity_span_one_open"
            ),
            models.CheckConstraint(
                condition=models.Q(ended_at__isnull=True) | models.Q(ended_at__gte=models.F("started_at")),
                name="capacity_span_forward",
            ),
            models.CheckConstraint(
                condition=models.Q(unavailable_cards__lte=models.F("cards")), name="capacity_span_unavailable"
            ),
        ]
        indexes = [models.Index(fields=["cluster", "started_at"], name="capacity_span_by_time")]
