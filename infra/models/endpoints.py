"""Where a cluster's Prometheus and OpenCost answer, and how we may ask them."""

from django.db import models
from django.db.models.functions import Now

from infra.models.clusters import Cluster
from portal.kernel.scoping import Global


class ClusterEndpoint(Global):
    """An HTTP API that tells of one cluster: one Prometheus-compatible API, one OpenCost.

    ``secret_ciphertext`` is encrypted JSON (:mod:`portal.kernel.crypto`) of what ``auth`` needs: ``{"token"}``,
    ``{"username", "password"}`` or ``{"client_cert", "client_key"}`` (PEM). ``matchers`` are the labels that pick this
    cluster out of a store of many (Thanos, Mimir, VictoriaMetrics): ``{"cluster": "gpu-fra-1"}`` is put into every
    selector. ``tenant_header`` names the header for multi-tenant stores (``X-Scope-OrgID``).
    """

    class Role(models.TextChoices):
        METRICS = "metrics", "Prometheus"
        OPENCOST = "opencost", "OpenCost"

    class Via(models.TextChoices):
        DIRECT = "direct", "directly"
        PROXY = "proxy", "through the API server's proxy"

    class Auth(models.TextChoices):
        NONE = "none", "none"
        BEARER = "bearer", "bearer token"
        BASIC = "basic", "user name and password"
        MTLS = "mtls", "client certificate"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="endpoints")
    role = models.CharField(max_length=10, choices=Role.choices)
    via = models.CharField(max_length=8, choices=Via.choices, default=Via.DIRECT)
    url = models.URLField(max_length=400, blank=True, help_text="Directly: base address, with any path prefix.")
    service = models.CharField(
        max_length=200,
        blank=True,
        help_text="Through the proxy: namespace/service:port, or namespace/https:service:port.",
    )
    path_prefix = models.CharField(max_length=200, blank=True, help_text="Through the proxy: as /prometheus.")
    auth = models.CharField(max_length=8, choices=Auth.choices, default=Auth.NONE)
    secret_ciphertext = models.BinaryField(editable=False, default=b"")
    ca_data = models.TextField(blank=True, help_text="PEM; empty: the system's authorities.")
    tenant_header = models.CharField(max_length=60, blank=True)
    tenant_value = models.CharField(max_length=120, blank=True)
    matchers = models.JSONField(default=dict, blank=True)
    paused = models.BooleanField(default=False)

    product = models.CharField(max_length=40, blank=True, help_text="What answered: prometheus, thanos, opencost …")
    version = models.CharField(max_length=60, blank=True)
    read_until = models.DateTimeField(null=True, blank=True, help_text="Everything before this instant is read.")
    last_answer_at = models.DateTimeField(null=True, blank=True)
    last_sample_at = models.DateTimeField(null=True, blank=True, help_text="Metrics: the newest sample that was seen.")
    conditions = models.JSONField(default=list, blank=True)
    generation = models.PositiveBigIntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["cluster", "role"]
        constraints = [models.UniqueConstraint(fields=["cluster", "role"], name="cluster_endpoint_unique")]

    def __str__(self) -> str:
        return f"{self.cluster_id}/{self.role}"
