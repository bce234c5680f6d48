"""AWS Lambda: the Python runtime of AWS, a Runtime API for each instance, and SIGSTOP for what freezes an instance between two calls.

Some instances connect through a load balancer that forgets a connection while nobody uses it. Instances vanish without a word, too.
"""

import atexit
import json
import os
import queue
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psycopg

from lap import CONNECTIONS, Counts
from threads import laps, migrate

counts = Counts()
HERE = Path(__file__).resolve().parent
ELASTIC = os.environ.get("MODE") == "elastic"
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close sends RST


class LoadBalancer:
    """Passes bytes on, until it forgets its connections: both ends get a reset."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.knows, self.threads = self.listener.getsockname()[1], threading.Event(), []
        self.knows.set()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            thread = threading.Thread(target=self.relay, args=[client, self.knows], daemon=True)
            self.threads.append(thread)
            thread.start()

    @staticmethod
    def relay(client, knows):
        gateway = socket.create_connection((os.environ["PGHOST"], int(os.environ["PGPORT"])))
        with client, gateway:
            while knows.is_set():
                ready, _, _ = select.select([client, gateway], [], [], 0.02)
                for source in ready:
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    (gateway if source is client else client).sendall(data)
            for end in (client, gateway):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    def forget(self):
        self.knows.clear()
        self.knows = threading.Event()
        self.knows.set()
        for thread in self.threads:
            thread.join()
        self.threads.clear()


class RuntimeApi(BaseHTTPRequestHandler):
    """What a runtime asks: the next call, and where its answer goes."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, headers=()):
        self.send_response(status)
        for name, value in [("Content-Length", len(body)), ("Content-Type", "application/json"), *headers]:
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        instance = self.server.instance
        instance.waits.set()
        # Of this life of the instance: its process may be killed while it waits.
        request, event = instance.calls.get()
        headers = {
            "Lambda-Runtime-Aws-Request-Id": request,
            "Lambda-Runtime-Deadline-Ms": int((time.time() + 60) * 1000),
            "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:us-east-1:000000000000:function:judge",
        }
        self.answer(200, json.dumps(event).encode(), headers.items())

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(202, b"{}")
        self.server.instance.answers.put((self.path.rsplit("/", 1)[1], body.decode()))


class Instance:
    """An execution environment of the function. It runs only while it is called."""

    def __init__(self, number):
        self.number = number
        self.balancer = LoadBalancer() if number % 2 else None
        self.answers, self.waits = queue.Queue(), threading.Event()
        self.api = ThreadingHTTPServer(("127.0.0.1", 0), RuntimeApi)
        self.api.instance, self.api.daemon_threads = self, True
        threading.Thread(target=self.api.serve_forever, daemon=True).start()
        self.process = None
        atexit.register(self.vanish)

    def start(self):
        self.name, self.called, self.calls = f"lambda-{self.number}-{uuid.uuid4()}", 0, queue.Queue()
        environment = {
            **os.environ,
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{self.api.server_port}",
            "AWS_LAMBDA_FUNCTION_NAME": "judged",
            "AWS_LAMBDA_FUNCTION_VERSION": "1",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "128",
            "AWS_LAMBDA_LOG_GROUP_NAME": "judged",
            "AWS_LAMBDA_LOG_STREAM_NAME": self.name,
        }
        if self.balancer:
            environment["PGPORT"] = str(self.balancer.port)
        command = [sys.executable, "-m", "awslambdaric", "lambda_function.handler"]
        self.process = subprocess.Popen(command, cwd=HERE, env=environment, stdout=sys.stderr)
        self.freeze()

    def freeze(self):
        """As soon as the runtime waits for the next call."""
        if not self.waits.wait(60):
            raise RuntimeError("the runtime did not ask for the next call")
        self.waits.clear()
        self.process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise RuntimeError(f"the runtime ended: {status}")

    def call(self, event):
        if self.process is None:
            self.start()
        self.process.send_signal(signal.SIGCONT)
        self.called += 1
        self.calls.put((str(uuid.uuid4()), event))
        kind, body = self.answers.get(timeout=60)
        self.freeze()
        if kind != "response":
            raise RuntimeError(body)
        return json.loads(body)

    def vanish(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None


def call(instance):
    cold = instance.process is None
    answer = instance.call({"key": str(uuid.uuid4()), "shared": random.choice(SHARED)})
    CALLS.append(instance.number)
    counts.row("cold", answer["cold"], cold)
    counts.setting("settings", answer["settings"], [instance.name, "Asia/Tokyo"])
    counts.row("added and removed", [answer["stars"], answer["removed"]], [2, 1])


def round_of(number, round):
    # Sometimes for longer than an idle session keeps its backend, and than that backend lives.
    time.sleep(random.choice([0, 0, 0.01, 0.2, 2.2]))
    instance = random.choice(INSTANCES[number::CONNECTIONS])
    if instance.process and instance.called >= 20:
        instance.vanish()
    for _ in range(random.choice([1, 1, 3])):
        call(instance)
    if instance.balancer and random.random() < 0.2:
        instance.balancer.forget()


def in_use():
    """Connections to the cluster that clients of the gateway hold. It measures twice a second: a measurement from now on."""
    asked = time.time()
    while True:
        with urllib.request.urlopen(os.environ["STATUS"], timeout=10) as answer:
            status = json.load(answer)
        if status["time"] > asked:
            return sum(pool["levels"]["in_use"] for pool in status["pools"])
        time.sleep(0.05)


def finish():
    """The other clients have ended. What frozen functions hold, and that each of them goes on when it is called."""
    if ELASTIC:
        until = time.monotonic() + 20
        held = 0
        # A connection that has to be replaced just then is not held.
        while not held and time.monotonic() < until:
            for instance in INSTANCES:
                call(instance)
            held = in_use()
        counts.row("functions that were just called hold backends", held > 0, True)
        while held and time.monotonic() < until:
            held = in_use()
        counts.row("backends of frozen functions", held, 0)
    for instance in INSTANCES:
        call(instance)
        instance.vanish()
    with psycopg.connect("", autocommit=True) as connection:
        (stars,) = connection.execute("SELECT sum(stars)::int FROM lambda_visits WHERE id = ANY(%s::uuid[])", [SHARED]).fetchone()
        counts.row("added by all", stars, len(CALLS))


TABLE = "CREATE TABLE lambda_visits (id uuid PRIMARY KEY, site text, stars int)"


def begin():
    with psycopg.connect("", autocommit=True) as connection:
        for key in SHARED:
            connection.execute("INSERT INTO lambda_visits (id, site, stars) VALUES (%s, 'shared', 0)", [key])


def create():
    with psycopg.connect("", autocommit=True) as connection:
        connection.execute(TABLE)


migrate(create)
CALLS, SHARED = [], [str(uuid.uuid4()) for _ in range(CONNECTIONS)]
begin()
# In mode elastic a frozen function holds nothing: there are more of them than backends.
INSTANCES = [Instance(number) for number in range(CONNECTIONS * (3 if ELASTIC else 1))]
laps(counts, round_of, finish)
