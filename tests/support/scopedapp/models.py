from django.db import models

from portal.kernel.scoping import TenantOwned


class Shelf(TenantOwned):
    tenant_id = models.UUIDField()
    name = models.CharField(max_length=20)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "name"], name="shelf_name")]


class Book(TenantOwned):
    tenant_id = models.UUIDField()
    shelf = models.ForeignKey(Shelf, on_delete=models.CASCADE, related_name="books")
    title = models.CharField(max_length=20)


class Note(TenantOwned):
    tenant_id = models.UUIDField()
    text = models.CharField(max_length=20)
