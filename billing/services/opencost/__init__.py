"""Keeping what OpenCost answers, and reading it hour by hour."""

from billing.services.opencost.estimates import claims_work_in
from billing.services.opencost.reading import Read, read_cluster
from billing.services.opencost.settings import opencost_set
from billing.services.opencost.storing import answer_refuse, answer_store, source_ensure

__all__ = ["Read", "answer_refuse", "answer_store", "claims_work_in", "opencost_set", "read_cluster", "source_ensure"]
