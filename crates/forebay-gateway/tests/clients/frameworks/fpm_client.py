"""PHP-FPM: requests that each connect, and requests on connections that stay with their process. This program is the web server."""

import atexit
import glob
import itertools
import json
import os
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from lap import CONNECTIONS, Counts
from threads import laps, migrate

counts = Counts()
HERE = Path(__file__).resolve().parent
PLACE = tempfile.TemporaryDirectory()
SOCKET = f"{PLACE.name}/fpm.sock"
CONFIGURATION = f"""[global]
error_log = {PLACE.name}/fpm.log
daemonize = no
[www]
listen = {SOCKET}
pm = static
pm.max_children = {CONNECTIONS}
pm.max_requests = 200
clear_env = no
"""
BEGIN, PARAMETERS, STDIN, STDOUT, END = 1, 4, 5, 6, 3


def start():
    Path(f"{PLACE.name}/fpm.conf").write_text(CONFIGURATION)
    program = next(iter(sorted(glob.glob("/usr/sbin/php-fpm*"))))
    # It refuses to work for root unless it is told so.
    root = ["--allow-to-run-as-root"] if os.geteuid() == 0 else []
    if root:
        Path(f"{PLACE.name}/fpm.conf").write_text(CONFIGURATION + "user = root\ngroup = root\n")
    fpm = subprocess.Popen([program, "--nodaemonize", "--fpm-config", f"{PLACE.name}/fpm.conf", *root])
    atexit.register(fpm.wait)
    atexit.register(fpm.terminate)
    until = time.monotonic() + 20
    while not os.path.exists(SOCKET):
        if fpm.poll() is not None or time.monotonic() > until:
            raise SystemExit(Path(f"{PLACE.name}/fpm.log").read_text())
        time.sleep(0.05)


def record(kind, content):
    return struct.pack(">BBHHBx", 1, kind, 1, len(content), 0) + content


def request(query):
    """A request of FastCGI. Returns what the script printed."""
    parameters = {"SCRIPT_FILENAME": str(HERE / "fpm.php"), "REQUEST_METHOD": "GET", "QUERY_STRING": query}
    pairs = b"".join(bytes([len(name), len(value)]) + f"{name}{value}".encode() for name, value in parameters.items())
    with socket.socket(socket.AF_UNIX) as server:
        server.settimeout(60)
        server.connect(SOCKET)
        server.sendall(record(BEGIN, struct.pack(">HB5x", 1, 0)) + record(PARAMETERS, pairs) + record(PARAMETERS, b"") + record(STDIN, b""))
        with server.makefile("rb") as answers:
            printed = b""
            while True:
                _, kind, _, length, padding = struct.unpack(">BBHHBx", answers.read(8))
                content = answers.read(length + padding)[:length]
                if kind == STDOUT:
                    printed += content
                if kind == END:
                    return printed.split(b"\r\n\r\n", 1)[1]


NUMBERS = itertools.count()


def round_of(number, round):
    for query in ["", "&persistent=1"]:
        answer = json.loads(request(f"request={next(NUMBERS)}{query}"))
        counts.checks += answer["checks"]
        for kind, note in answer["wrong"]:
            counts.failed[kind] += 1
            counts.note(note)


TABLE = "CREATE TABLE fpm_visits (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), path text, stars int)"
migrate(lambda: subprocess.run(["psql", "-Xqc", TABLE], check=True))
start()
laps(counts, round_of)
