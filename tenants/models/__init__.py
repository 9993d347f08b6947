"""Who owns what: tenants, quotas, model deployments."""

from tenants.models.deployments import DeploymentEvent, ModelDeployment, ModelReplica
from tenants.models.mappings import GroupGrant, GroupMapping
from tenants.models.quota import GPUQuota, QuotaAllotment
from tenants.models.tenants import Member, Tenant, TenantNamespace, TenantSite, Zone
from tenants.models.waits import WaitSpan

__all__ = [
    "DeploymentEvent",
    "GPUQuota",
    "GroupGrant",
    "GroupMapping",
    "Member",
    "ModelDeployment",
    "ModelReplica",
    "QuotaAllotment",
    "Tenant",
    "TenantNamespace",
    "TenantSite",
    "WaitSpan",
    "Zone",
]
