"""Who owns what: tenants, quotas, model deployments."""

from tenants.models.deployments import DeploymentEvent, ModelDeployment, ModelReplica
from tenants.models.mappings import GroupGrant, GroupMapping
from tenants.models.queueing import ClusterQueueing
from tenants.models.quota import GPUQuota, QuotaAllotment
from tenants.models.requests import AllotmentMove, QuotaComment, QuotaRequest
from tenants.models.tenantclusters import Robot, TenantCluster
from tenants.models.tenants import Member, Tenant, TenantNamespace, TenantSite, Zone
from tenants.models.waits import WaitSpan

__all__ = [
    "AllotmentMove",
    "ClusterQueueing",
    "DeploymentEvent",
    "GPUQuota",
    "GroupGrant",
    "GroupMapping",
    "Member",
    "ModelDeployment",
    "ModelReplica",
    "QuotaAllotment",
    "QuotaComment",
    "QuotaRequest",
    "Robot",
    "Tenant",
    "TenantCluster",
    "TenantNamespace",
    "TenantSite",
    "WaitSpan",
    "Zone",
]
