"""What the Python clients share: laps, and the count of what went wrong.

A client works until its lap is over, says `idle` and waits. At `go` it works again, at `end` it prints its counts. While every
client is idle, the script that started them cuts all connections of the gateway to the cluster.
"""

import asyncio
import json
import os
import sys
import time
import traceback

CONNECTIONS = int(os.environ.get("CONNECTIONS", "4"))
LAP = float(os.environ.get("LAP", "2"))
# Whether the server behind the gateway undoes SET at ROLLBACK, and SET LOCAL at the end of the transaction.
UNDOES_SET = os.environ.get("UNDOES_SET") == "1"
COPIES = os.environ.get("COPIES", "1") == "1"


class Counts:
    def __init__(self):
        self.rounds = 0
        self.checks = 0
        self.failed = {"errors": 0, "lost settings": 0, "wrong rows": 0}
        self.notes = []

    def same(self, kind, what, got, expected):
        self.checks += 1
        if got != expected:
            self.failed[kind] += 1
            self.note(f"{what}: got {str(got)[:200]!r}, expected {str(expected)[:200]!r}")

    def row(self, what, got, expected):
        self.same("wrong rows", what, got, expected)

    def setting(self, what, got, expected):
        self.same("lost settings", what, got, expected)

    def error(self):
        self.failed["errors"] += 1
        self.note(traceback.format_exc(limit=-4))

    def note(self, text):
        if len(self.notes) < 5:
            self.notes.append(text)

    def print(self):
        print(json.dumps({"rounds": self.rounds, "checks": self.checks, **self.failed, "notes": self.notes}), flush=True)


async def laps(counts, open_one, round_of):
    """`open_one(number)` opens a client, `round_of(client, number, round)` is one round of work."""
    clients = [await open_one(number) for number in range(CONNECTIONS)]
    while True:
        end = time.monotonic() + LAP

        async def work(number):
            while time.monotonic() < end:
                counts.rounds += 1
                try:
                    await round_of(clients[number], number, counts.rounds)
                except Exception:
                    counts.error()
                    # What its session has become is not known. The next round shall not fail because of it.
                    clients[number] = await open_one(number)

        await asyncio.gather(*(work(number) for number in range(CONNECTIONS)))
        print("idle", flush=True)
        if (await asyncio.to_thread(sys.stdin.readline)).strip() != "go":
            break
    counts.print()
