"""asyncpg: named statements that it caches, its pool's reset batch, cursors, executemany, COPY."""

import asyncio
import random
import uuid

import asyncpg

from lap import CONNECTIONS, COPIES, UNDOES_SET, Counts, laps

counts = Counts()
pool = None


class Client:
    def __init__(self, connection, number):
        self.connection = connection
        self.application_name = f"asyncpg-{number}"
        self.time_zone = "UTC"
        self.statement = None


async def open_one(number):
    connection = await asyncpg.connect(
        statement_cache_size=5, server_settings={"application_name": f"asyncpg-{number}", "TimeZone": "UTC"}
    )
    client = Client(connection, number)
    client.statement = await connection.prepare("SELECT $1::int + 1 AS next, $2::text AS word")
    return client


async def pause():
    await asyncio.sleep(random.choice([0, 0, 0.002, 0.02]))


async def settings(client):
    counts.setting("application_name", await client.connection.fetchval("SHOW application_name"), client.application_name)
    counts.setting("TimeZone", await client.connection.fetchval("SHOW TimeZone"), client.time_zone)
    counts.setting("reported TimeZone", client.connection.get_settings().TimeZone, client.time_zone)


async def statements(client, number, round):
    connection = client.connection
    counts.row("prepared", tuple(await client.statement.fetchrow(round, f"w{number}")), (round + 1, f"w{number}"))
    for n in range(7):  # more than it caches
        counts.row("cached", await connection.fetchval(f"SELECT $1::int * {n}", round), round * n)
    await pause()
    counts.row("simple", await connection.execute("SELECT 1; SELECT 2"), "SELECT 1")
    try:
        await connection.execute("SELECT 1; SELEKT 2")
        counts.row("a bad batch", "accepted", "refused")
    except asyncpg.PostgresSyntaxError:
        counts.checks += 1
    array = await connection.fetchval("SELECT $1::int[]", [1, 2, round])
    counts.row("array", array, [1, 2, round])


async def transaction(client, number, round):
    connection, key = client.connection, uuid.uuid4()
    async with connection.transaction():
        if UNDOES_SET:
            await connection.execute("SET LOCAL TimeZone = 'Asia/Tokyo'")
        await connection.execute("INSERT INTO judged (id, client, n) VALUES ($1, $2, $3)", key, f"asyncpg-{number}", round)
        await pause()
        # A portal that is suspended after each ten rows.
        got = [row["n"] async for row in connection.cursor("SELECT n FROM generate_series(1, 95) AS n", prefetch=10)]
        counts.row("cursor", got, list(range(1, 96)))
    counts.row("committed", await connection.fetchval("SELECT n FROM judged WHERE id = $1", key), round)
    try:
        async with connection.transaction():
            if UNDOES_SET:
                await connection.execute("SET application_name = 'undone'")
            await connection.execute("UPDATE judged SET n = -1 WHERE id = $1", key)
            await connection.fetchval("SELECT $1::int / 0", round)
        counts.row("an error", "none", "22012")
    except asyncpg.DivisionByZeroError:
        counts.checks += 1
    counts.row("rolled back", await connection.fetchval("SELECT n FROM judged WHERE id = $1", key), round)
    await connection.execute("DELETE FROM judged WHERE id = $1", key)


async def batch(client, number, round):
    """executemany is one pipeline of Bind and Execute, in one implicit transaction."""
    connection, name = client.connection, f"asyncpg-many-{number}-{round}"
    insert = "INSERT INTO judged (id, client, n) VALUES ($1, $2, $3)"
    await connection.executemany(insert, [(uuid.uuid4(), name, n) for n in range(50)])
    again = uuid.uuid4()
    try:
        await connection.executemany(insert, [(uuid.uuid4(), name, 100), (again, name, 101), (again, name, 102), (uuid.uuid4(), name, 103)])
        counts.row("a key twice", "accepted", "refused")
    except (asyncpg.UniqueViolationError, asyncpg.SerializationError):
        counts.checks += 1
    row = await connection.fetchrow("SELECT count(*) AS rows, sum(n) AS sum FROM judged WHERE client = $1", name)
    counts.row("executemany", tuple(row), (50, 1225))
    await connection.execute("DELETE FROM judged WHERE client = $1", name)


async def large(client, round):
    connection = client.connection
    letter = chr(97 + round % 26)
    counts.row("large row", await connection.fetchval("SELECT repeat($1, 300000)", letter), letter * 300_000)
    counts.row("large parameter", await connection.fetchval("SELECT length($1)", "y" * 300_000), 300_000)


async def copy(client, number, round):
    connection, name = client.connection, f"asyncpg-copy-{number}-{round}"
    records = [(uuid.uuid4(), name, n) for n in range(30)]
    await connection.copy_records_to_table("judged", records=records, columns=["id", "client", "n"])
    got = []

    async def take(data):
        got.append(data)

    await connection.copy_from_query("SELECT n FROM judged WHERE client = $1 ORDER BY n", name, output=take)
    counts.row("copied", b"".join(got).split(), [str(n).encode() for n in range(30)])
    await connection.execute("DELETE FROM judged WHERE client = $1", name)


async def change_settings(client, number, round):
    client.application_name = f"asyncpg-{number}-{round}"
    client.time_zone = random.choice(["UTC", "Europe/Berlin", "Asia/Tokyo"])
    await client.connection.execute(f"SET application_name = '{client.application_name}'; SET TimeZone = '{client.time_zone}'")


async def pooled(number, round):
    """The pool resets what it lends: no settings of the previous borrower are left."""
    async with pool.acquire() as connection:
        counts.setting("pool", await connection.fetchval("SHOW application_name"), "pooled")
        await connection.execute(f"SET application_name = 'lent-{number}-{round}'")
        await pause()
        counts.row("pool", await connection.fetchval("SELECT $1::int", round), round)
        counts.setting("pool", await connection.fetchval("SHOW application_name"), f"lent-{number}-{round}")


async def round_of(client, number, round):
    await settings(client)
    await pause()
    await statements(client, number, round)
    await change_settings(client, number, round)
    await pause()
    await transaction(client, number, round)
    await settings(client)
    await pause()
    await batch(client, number, round)
    await pooled(number, round)
    if round % 3 == 0:
        await large(client, round)
        if COPIES:
            await copy(client, number, round)
    if round % 5 == 0:
        await client.connection.reset()
        client.application_name, client.time_zone = f"asyncpg-{number}", "UTC"
    if round % 11 == 0:
        await client.connection.reload_schema_state()
    await settings(client)


async def main():
    global pool
    settings = {"application_name": "pooled"}
    async with asyncpg.create_pool(min_size=2, max_size=max(2, CONNECTIONS // 2), server_settings=settings) as pool:
        await laps(counts, open_one, round_of)


asyncio.run(main())
