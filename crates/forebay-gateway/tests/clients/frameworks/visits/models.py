import uuid

from django.db import models


class Site(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    name = models.TextField(unique=True)


class Visit(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    site = models.ForeignKey(Site, models.CASCADE, db_constraint=False)
    path = models.TextField(null=True)
    stars = models.IntegerField(null=True)
