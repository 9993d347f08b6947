"""The scheduler of the fleet: pure. `place(snapshot, request)` answers where replicas go and, for each cluster and
pool that was not chosen, why not. See `infra.placement.model` for the data that goes in and comes out."""

from infra.placement.model import *  # noqa: F403
