"""What the frameworks in Python share: laps, with a thread for each connection. See lap.py of the drivers."""

import os
import signal
import sys
import threading
import time

from lap import CONNECTIONS, LAP

# What a client has started ends with it, as it would not by itself.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def migrate(work):
    """A run of its own makes the tables. What it did is there in the others."""
    if os.environ.get("MIGRATE") == "1":
        work()
        sys.exit(0)


def laps(counts, round_of, finish=lambda: None):
    """`round_of(number, round)` is one round of work. `finish` is called after the last lap."""
    lock = threading.Lock()

    def work(number, end):
        while time.monotonic() < end:
            with lock:
                counts.rounds += 1
                round = counts.rounds
            try:
                round_of(number, round)
            except Exception as error:
                # A connection that was opened before the migrations fails once, also outside of a transaction.
                if "OC001" not in str(error):
                    with lock:
                        counts.error()

    while True:
        end = time.monotonic() + LAP
        tell = [threading.Event() for _ in WORKERS]
        for worker, done in zip(WORKERS, tell, strict=True):
            worker.give(lambda number: work(number, end), done)
        for done in tell:
            done.wait()
        print("idle", flush=True)
        if sys.stdin.readline().strip() != "go":
            break
    try:
        finish()
    except Exception:
        counts.error()
    counts.print()


class Worker(threading.Thread):
    """A thread that lasts, as Django keeps a connection for each thread."""

    def __init__(self, number):
        super().__init__(daemon=True)
        self.number, self.given, self.wake = number, None, threading.Event()
        self.start()

    def give(self, work, done):
        self.given = (work, done)
        self.wake.set()

    def run(self):
        while True:
            self.wake.wait()
            self.wake.clear()
            work, done = self.given
            work(self.number)
            done.set()


WORKERS = [Worker(number) for number in range(CONNECTIONS)]
