"""Who owns what: tenants, quotas, model deployments."""

from tenants.models.deployments import DeploymentEvent, ModelDeployment, ModelReplica
from tenants.models.quota import GPUQuota, QuotaAllotment
from tenants.models.tenants import Member, Tenant, TenantNamespace, TenantSite, Zone

__all__ = [
    "DeploymentEvent",
    "GPUQuota",
    "Member",
    "ModelDeployment",
    "ModelReplica",
    "QuotaAllotment",
    "Tenant",
    "TenantNamespace",
    "TenantSite",
    "Zone",
]
