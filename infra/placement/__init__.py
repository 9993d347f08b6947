"""The scheduler of the fleet: pure, no Django, no I/O.

`place(snapshot, request)` answers where replicas go and, for each cluster and pool that was not chosen, why not.
`infra.placement.model` has the data that goes in and comes out, `infra.placement.free` the ledger's arithmetic.
"""

from infra.placement.free import free_vector
from infra.placement.model import *  # noqa: F403
from infra.placement.model import __all__ as _model
from infra.placement.plan import place

__all__ = [*_model, "free_vector", "place"]  # noqa: PLE0604
