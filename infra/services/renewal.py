"""Putting renewed credentials of a cluster in the place of the old ones."""

from __future__ import annotations

from infra.kube.kubeconfig import Credentials, issued_at
from infra.models import Cluster
from portal.kernel import audit, crypto
from portal.kernel.actors import Actor

RENEWER = Actor.system("credential renewal")


def renewal_store(row: Cluster, credentials: Credentials, *, instead_of: bytes) -> bool:
    """Put them into a locked row and save it, with the audit; whether it was done.

    Where somebody rotated the kubeconfig meanwhile (the row no longer holds ``instead_of``), theirs stay. Watchers and
    workers read the row for each list and stream, so they go on with the new ones.
    """
    if bytes(row.kubeconfig_ciphertext) != instead_of or row.abandoned_at is not None:
        return False
    before = row.credential_expires_at
    row.kubeconfig_ciphertext = crypto.encrypt(credentials.dumps())
    row.credential_expires_at = credentials.expires_at
    row.credential_issued_at = issued_at(credentials)
    row.save(update_fields=["kubeconfig_ciphertext", "credential_expires_at", "credential_issued_at"])
    audit.record(
        "cluster_renew_credentials",
        actor=RENEWER,
        tenant_id=None,
        object_kind="cluster",
        object_id=row.pk,
        object_name=row.slug,
        before={"expires_at": str(before or "not known")},
        after={"expires_at": str(row.credential_expires_at or "not known")},
    )
    return True
