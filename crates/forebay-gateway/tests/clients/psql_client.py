"""psql: simple queries, its pipeline of several statements, \\gset, \\copy, \\bind where it has it."""

import asyncio
import random
import uuid

from lap import COPIES, Counts, laps

counts = Counts()


class Client:
    def __init__(self, process, number):
        self.process, self.name = process, f"psql-{number}"

    async def ask(self, text):
        """The lines that psql prints for this."""
        mark = f"mark-{uuid.uuid4()}"
        self.process.stdin.write(f"{text}\n\\echo {mark}\n".encode())
        await self.process.stdin.drain()
        lines = []
        while (line := (await self.process.stdout.readline()).decode().rstrip("\n")) != mark:
            if not line and self.process.stdout.at_eof():
                raise EOFError(f"psql ended: {lines}")
            lines.append(line)
        return lines


async def open_one(number):
    process = await asyncio.create_subprocess_exec(
        "psql", "-XqAt", "-v", "VERBOSITY=sqlstate", f"application_name=psql-{number}",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, limit=1 << 20,
    )  # fmt: skip
    return Client(process, number)


async def round_of(client, number, round):
    counts.setting("application_name", await client.ask("SHOW application_name;"), [client.name])
    client.name = f"psql-{number}-{round}"
    await client.ask(f"SET application_name = '{client.name}';")
    await asyncio.sleep(random.choice([0, 0.002, 0.05]))
    key = uuid.uuid4()
    counts.row("simple", await client.ask("SELECT 1; SELECT 2;"), ["1", "2"])
    counts.row("one message", await client.ask(f"SELECT {round} \\; SELECT {round} + 1;"), [str(round), str(round + 1)])
    counts.row("variable", await client.ask(f"SELECT {round} * 2 AS twice \\gset\nSELECT :twice + 1;"), [str(round * 2 + 1)])
    counts.row("error", await client.ask("SELECT 1 / 0;"), ["ERROR:  22012"])
    await client.ask("BEGIN;")
    await client.ask(f"INSERT INTO judged (id, client, n) VALUES ('{key}', 'psql', {round});")
    await asyncio.sleep(random.choice([0, 0.002, 0.05]))
    counts.row("failed", await client.ask("SELEKT; SELECT 1;"), ["ERROR:  42601", "ERROR:  25P02"])
    await client.ask("ROLLBACK;")
    counts.row("rolled back", await client.ask(f"SELECT count(*) FROM judged WHERE id = '{key}';"), ["0"])
    counts.row("large row", [len(line) for line in await client.ask("SELECT repeat('x', 300000);")], [300_000])
    if COPIES and round % 3 == 0:
        rows = "\n".join(f"{uuid.uuid4()}\tpsql-{key}\t{n}" for n in range(5))
        await client.ask(f"\\copy judged (id, client, n) FROM STDIN\n{rows}\n\\.")
        counts.row("copied", await client.ask(f"\\copy (SELECT n FROM judged WHERE client = 'psql-{key}' ORDER BY n) TO STDOUT"), list("01234"))
        await client.ask(f"DELETE FROM judged WHERE client = 'psql-{key}';")
    if round % 5 == 0:
        counts.row("discard", await client.ask("DISCARD ALL;"), [])
        client.name = f"psql-{number}"
    counts.setting("application_name", await client.ask("SHOW application_name;"), [client.name])


asyncio.run(laps(counts, open_one, round_of))
