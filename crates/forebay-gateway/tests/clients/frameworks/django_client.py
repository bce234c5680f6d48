"""Django: its migrations, its ORM, transactions that are run again, a connection that each thread keeps, and its pool."""

import os
import random
import time
import uuid

import django
from django.conf import settings

from lap import CONNECTIONS, Counts
from threads import laps, migrate

DATABASE = {
    "ENGINE": "gateway_backend",
    "HOST": os.environ["PGHOST"],
    "PORT": os.environ["PGPORT"],
    "NAME": os.environ["PGDATABASE"],
    "USER": os.environ["PGUSER"],
    "PASSWORD": os.environ["PGPASSWORD"],
    "CONN_MAX_AGE": None,
    "DISABLE_SERVER_SIDE_CURSORS": True,
}
POOL = {"pool": {"min_size": 1, "max_size": max(2, CONNECTIONS // 2)}}
settings.configure(
    INSTALLED_APPS=["visits"],
    # One whose statements are prepared by the server, one that binds them there without a name, and one with a pool.
    DATABASES={
        "default": {**DATABASE, "OPTIONS": {"application_name": "django", "prepare_threshold": 1}},
        "bound": {**DATABASE, "OPTIONS": {"application_name": "django", "server_side_binding": True}},
        "pooled": {**DATABASE, "CONN_MAX_AGE": 0, "OPTIONS": {"application_name": "django", **POOL}},
    },
    USE_TZ=True,
)
django.setup()

from django.core.management import call_command
from django.db import IntegrityError, OperationalError, connections, transaction
from django.db.models import Count, F
from visits.models import Site, Visit

counts = Counts()


def again(alias, work):
    for attempt in range(10):
        try:
            with transaction.atomic(using=alias):
                return work()
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != "40001" or attempt == 9:
                raise
            time.sleep(random.random() * 0.02)


def one(alias, sql):
    with connections[alias].cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


def round_of(number, round):
    alias = ["default", "bound", "pooled"][round % 3]
    sites, visits = Site.objects.using(alias), Visit.objects.using(alias)
    name = f"django-{number}-{round}-{uuid.uuid4()}"
    counts.setting("application_name", one(alias, "SHOW application_name"), "django")
    site = sites.create(name=name)
    counts.row("a unique name", again(alias, lambda: sites.get_or_create(name=name)[1]), False)

    def write():
        visits.bulk_create([Visit(site=site, path=f"/{n}", stars=n % 5) for n in range(30)])
        visits.filter(site=site, path="/0").update(stars=F("stars") + 100)

    again(alias, write)
    counts.row("joined", visits.filter(site__name=name, stars__gte=100).count(), 1)
    counts.row("related", visits.select_related("site").filter(site=site).order_by("path").first().site.name, name)
    counts.row("iterated", sum(visit.stars for visit in visits.filter(site=site).iterator(chunk_size=7)), 160)
    grouped = visits.filter(site=site).values("stars").annotate(n=Count("id")).order_by("stars")
    counts.row("grouped", [row["n"] for row in grouped], [5, 6, 6, 6, 6, 1])
    try:
        with transaction.atomic(using=alias):
            visits.create(site=site, path="never")
            sites.create(name=name)
        counts.row("a name twice", "accepted", "refused")
    except (IntegrityError, OperationalError) as error:
        counts.row("a name twice", getattr(error.__cause__, "sqlstate", None), "23505")
    counts.row("rolled back", visits.filter(site=site, path="never").exists(), False)
    again(alias, site.delete)
    counts.row("deleted", visits.filter(site_id=site.id).count(), 0)
    if alias == "pooled":
        # As at the end of a request.
        connections[alias].close()


def migrations():
    call_command("migrate", verbosity=0)
    # It finds the tables as the models want them.
    call_command("makemigrations", check=True, dry_run=True)
    # Another connection may be behind each statement. None of them fails because of what was changed here.
    with connections["default"].cursor() as cursor:
        cursor.execute("CREATE TABLE django_changes (id uuid PRIMARY KEY)")
        for number in range(40):
            cursor.execute(f"ALTER TABLE django_changes ADD COLUMN c{number} int")
            cursor.execute("SELECT 'x'")
            cursor.execute(f"SELECT c{number} FROM django_changes WHERE c{number} = %s", [number])


migrate(migrations)
laps(counts, round_of)
