from django.db import models


class Owner(models.Model):
    name = models.CharField(max_length=80, db_index=True)
    email = models.EmailField(unique=True)
    settings = models.JSONField(default=dict)
    created = models.DateTimeField(auto_now_add=True)


class Specialty(models.Model):
    name = models.CharField(max_length=40, unique=True)


class Vet(models.Model):
    name = models.CharField(max_length=80)
    specialties = models.ManyToManyField(Specialty)


class Pet(models.Model):
    owner = models.ForeignKey(Owner, on_delete=models.CASCADE, related_name="pets")
    name = models.CharField(max_length=80)
    weight = models.DecimalField(max_digits=6, decimal_places=2)
    born = models.DateField(null=True)
    visits = models.PositiveIntegerField(default=0)

    class Meta:
        indexes = [models.Index(fields=["owner", "name"], name="pet_by_owner_and_name")]
        constraints = [
            models.CheckConstraint(condition=models.Q(weight__gt=0), name="pet_weight"),
            models.UniqueConstraint(fields=["owner", "name"], name="pet_name_is_unique"),
        ]
