"""Rails: an application with its migrations, models and controllers, served by Puma. This program is its clients."""

import atexit
import json
import os
import shutil
import subprocess
import tempfile
import threading
import uuid
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote

from lap import CONNECTIONS, Counts
from threads import laps, migrate

counts = Counts()
THREADS = max(1, CONNECTIONS // 2)
HERE = Path(__file__).resolve().parent
# It writes beside its files.
PLACE = tempfile.TemporaryDirectory()
APPLICATION = Path(shutil.copytree(HERE / "rails", f"{PLACE.name}/rails"))
ENVIRONMENT = {
    **os.environ,
    "RAILS_ENV": "production",
    "RAILS_MAX_THREADS": str(THREADS),
    "PGAPPNAME": "rails",
    "DATABASE_URL": "postgresql://{PGUSER}:{password}@{PGHOST}:{PGPORT}/{PGDATABASE}".format(
        **os.environ, password=quote(os.environ["PGPASSWORD"])
    ),
}


def rails(*arguments):
    subprocess.run(["ruby", "bin/rails", *arguments], cwd=APPLICATION, env=ENVIRONMENT, check=True)


def migrations():
    # It dumps the schema afterwards, as it does in development: that reads the catalog.
    rails("db:migrate")
    schema = (APPLICATION / "db/schema.rb").read_text()
    if 'create_table "rails_visits", id: :uuid' not in schema or '"stars"' not in schema:
        raise SystemExit(schema)
    rails("db:rollback")
    rails("db:migrate")
    rails("db:abort_if_pending_migrations")


def start():
    # Two processes, each with a pool.
    command = ["puma", "--workers", "2", "--preload", "--threads", f"{THREADS}:{THREADS}", "--bind", "tcp://127.0.0.1:0"]
    puma = subprocess.Popen(command, cwd=APPLICATION, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    atexit.register(puma.wait)
    atexit.register(puma.terminate)
    for line in puma.stdout:
        if "Listening on" in line:
            return int(line.rsplit(":", 1)[1])
    raise SystemExit("puma did not start")


def request(method, path, **values):
    """Returns its status, and what it says."""
    connection = HTTPConnection("127.0.0.1", PORT, timeout=60)
    try:
        connection.request(method, path, json.dumps(values), {"Content-Type": "application/json"})
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    answer = json.loads(body) if body else None
    if response.status == 500:
        raise RuntimeError(answer["error"])
    return response.status, answer


def round_of(number, round):
    name, key = f"rails-{number}-{round}-{uuid.uuid4()}", str(uuid.uuid4())
    counts.setting("settings", request("GET", "/name")[1], {"name": "rails", "time_zone": "UTC"})
    status, site = request("POST", "/sites", id=key, name=name)
    counts.row("created", [status, site["id"], site["name"]], [201, key, name])
    _, visit = request("POST", f"/sites/{key}/visits", count=20)
    # Some of them meet a conflict.
    adds = [threading.Thread(target=request, args=["PATCH", f"/sites/{key}/visits/{visit['id']}"]) for _ in range(3)]
    for add in adds:
        add.start()
    for add in adds:
        add.join()
    expected = {"name": name, "preloaded": 20, "counted": 20, "joined": 193, "in_batches": 193}
    counts.row("shown", request("GET", f"/sites/{key}"), (200, expected))
    counts.row("a key twice", request("PUT", f"/sites/{key}")[0], 409)
    counts.row("rolled back", request("GET", f"/sites/{key}"), (200, expected))
    counts.row("destroyed", request("DELETE", f"/sites/{key}")[0], 204)
    counts.row("gone", request("GET", f"/sites/{key}")[0], 404)


migrate(migrations)
PORT = start()
laps(counts, round_of)
