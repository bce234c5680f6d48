from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("visits", "0001_initial")]
    operations = [migrations.AddField("visit", "stars", models.IntegerField(null=True))]
