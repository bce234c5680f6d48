import uuid

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel(
            "Site",
            [
                ("id", models.UUIDField(primary_key=True, default=uuid.uuid4, serialize=False)),
                ("name", models.TextField(unique=True)),
            ],
        ),
        migrations.CreateModel(
            "Visit",
            [
                ("id", models.UUIDField(primary_key=True, default=uuid.uuid4, serialize=False)),
                ("site", models.ForeignKey("visits.Site", models.CASCADE, db_constraint=False)),
                ("path", models.TextField(null=True)),
            ],
        ),
    ]
