"""What whoever is on call sets for the whole installation."""

from django.db import models
from django.db.models.functions import Now

from portal.kernel.scoping import Global


class WriteStop(Global):
    """While its one row is there, nothing is written to any cluster (:mod:`infra.kube.guard` asks at each write).

    Who stopped, resumed and why stays in the audit; the row itself goes when writing is resumed.
    """

    singleton = models.BooleanField(default=True, editable=False, unique=True)
    stopped_by = models.CharField(max_length=200)
    stopped_at = models.DateTimeField(db_default=Now())
    reason = models.TextField()

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(singleton=True), name="write_stop_is_one")]

    def __str__(self) -> str:
        return f"stopped by {self.stopped_by}: {self.reason}"
