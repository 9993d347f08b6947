"""Who may change the fleet: platform-admins, and parts of the system that a command started."""

from portal.kernel.actors import PLATFORM_ADMIN, Actor
from portal.kernel.problems import Forbidden


def require_platform_admin(actor: Actor, verb: str, *, object_kind: str, object_name: str) -> None:
    """Let the actor pass, or raise with what the audit is to say of it.

    Raises:
        Forbidden: the actor is no platform-admin, or a token that may only read.
    """
    reads_only = actor.kind == "token" and "write" not in actor.scopes
    if actor.is_system or (actor.is_platform(PLATFORM_ADMIN) and not reads_only):
        return
    why = "the token may only read" if reads_only else "it takes the role platform-admin"
    problem = Forbidden(f"{actor.label} may not do this to {object_kind} {object_name}: {why}. Ask a platform-admin.")
    problem.refusal = {
        "verb": verb,
        "actor": actor,
        "tenant_id": None,
        "object_kind": object_kind,
        "object_id": None,
        "object_name": object_name,
        "reason": problem.detail,
    }
    raise problem
