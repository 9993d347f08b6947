"""Whether a cluster's Kueue queues what tenants run there."""

from django.db import models
from django.db.models.functions import Now

from infra.models import Cluster
from portal.kernel.scoping import Global


class ClusterQueueing(Global):
    """Kueue on one cluster: switched on by a platform-admin, filled by the reconciler ``kueue``.

    ``api_version`` is the one that the cluster serves (``kueue.x-k8s.io/v1beta2``), empty until it was asked.
    ``draining``: it was switched off and what was admitted has not ended yet.
    """

    cluster = models.OneToOneField(Cluster, on_delete=models.PROTECT, related_name="queueing")
    enabled = models.BooleanField(default=False)
    draining = models.BooleanField(default=False)
    api_version = models.CharField(max_length=60, blank=True)
    generation = models.PositiveBigIntegerField(default=1)
    observed_generation = models.PositiveBigIntegerField(default=0)
    conditions = models.JSONField(default=list, blank=True)
    queues = models.JSONField(
        default=dict, blank=True, help_text="Namespaces whose LocalQueue was applied, and whose they are."
    )
    created_at = models.DateTimeField(db_default=Now())
