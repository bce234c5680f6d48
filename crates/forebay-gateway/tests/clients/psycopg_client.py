"""psycopg 3: statements it prepares by name, pipelines, COPY, server-side parameters, its pool, DEALLOCATE."""

import asyncio
import random
import uuid

import psycopg
from psycopg import errors
from psycopg_pool import AsyncConnectionPool

from lap import COPIES, UNDOES_SET, Counts, laps

counts = Counts()
BIG = 300_000


class Client:
    def __init__(self, connection, number):
        self.connection = connection
        self.application_name = f"psycopg-{number}"
        self.time_zone = "UTC"


async def open_one(number):
    connection = await psycopg.AsyncConnection.connect(
        "", autocommit=True, prepare_threshold=0, application_name=f"psycopg-{number}", options="-c TimeZone=UTC"
    )
    # More texts than this in a round: old statements are deallocated all the time.
    connection.prepared_max = 6
    return Client(connection, number)


async def pause():
    await asyncio.sleep(random.choice([0, 0, 0.002, 0.02]))


async def one(connection, query, *parameters, **options):
    return (await (await connection.execute(query, parameters or None, **options)).fetchone())[0]


async def settings(client):
    counts.setting("application_name", await one(client.connection, "SHOW application_name"), client.application_name)
    counts.setting("TimeZone", await one(client.connection, "SHOW TimeZone"), client.time_zone)


async def prepared(client, number, round):
    for n in range(8):
        counts.row("prepared", await one(client.connection, f"SELECT %s::int + {n} AS n{n}", round), round + n)
    counts.row("text", await one(client.connection, "SELECT %s::text", f"{number}/{round}"), f"{number}/{round}")
    # Binary results.
    cursor = client.connection.cursor(binary=True)
    await cursor.execute("SELECT %s::int8, %s::text, NULL::int", (round, "b"))
    counts.row("binary", await cursor.fetchone(), (round, "b", None))


async def transaction(client, number, round):
    connection, key = client.connection, uuid.uuid4()
    async with connection.transaction():
        if UNDOES_SET:
            await connection.execute("SET LOCAL TimeZone = 'Asia/Tokyo'")
        await connection.execute("INSERT INTO judged (id, client, n) VALUES (%s, %s, %s)", (key, f"psycopg-{number}", round))
        await pause()
        counts.row("own row", await one(connection, "SELECT n FROM judged WHERE id = %s", key), round)
    counts.row("committed", await one(connection, "SELECT n FROM judged WHERE id = %s", key), round)
    try:
        async with connection.transaction():
            if UNDOES_SET:
                await connection.execute("SET application_name = 'undone'")
            await connection.execute("UPDATE judged SET n = -1 WHERE id = %s", (key,))
            await connection.execute("SELECT 1 / 0")
    except errors.DivisionByZero:
        counts.checks += 1
    counts.row("rolled back", await one(connection, "SELECT n FROM judged WHERE id = %s", key), round)
    await connection.execute("DELETE FROM judged WHERE id = %s", (key,))


async def pipeline(client, number, round):
    connection = client.connection
    async with connection.pipeline():
        cursors = [await connection.execute("SELECT %s::int * 2 AS twice", (n,)) for n in range(10)]
        got = [(await cursor.fetchone())[0] for cursor in cursors]
    counts.row("pipeline", got, [n * 2 for n in range(10)])
    good = None
    try:
        async with connection.pipeline() as pipe:
            good = await connection.execute("SELECT %s::int + 100 AS good", (round,))
            await pipe.sync()
            await connection.execute("SELECT %s::int / 0", (round,))
            await connection.execute("INSERT INTO judged (id, client, n) VALUES (%s, 'skipped', %s)", (uuid.uuid4(), round))
        counts.row("an error in a pipeline", "none", "22012")
    except errors.DivisionByZero:
        counts.row("before the error", (await good.fetchone())[0], round + 100)
    counts.row("skipped", await one(connection, "SELECT count(*) FROM judged WHERE client = 'skipped'"), 0)


async def large(client, round):
    connection = client.connection
    counts.row("large row", await one(connection, "SELECT repeat(%s, %s)", chr(97 + round % 26), BIG), chr(97 + round % 26) * BIG)
    counts.row("large parameter", await one(connection, "SELECT length(%s::text)", "y" * BIG), BIG)
    rows = await (await connection.execute("SELECT n, repeat('z', 50) FROM generate_series(1, 2000) AS n")).fetchall()
    counts.row("many rows", (len(rows), sum(row[0] for row in rows)), (2000, 2001000))


async def copy(client, number, round):
    connection, name = client.connection, f"psycopg-copy-{number}-{round}"
    cursor = connection.cursor()
    async with cursor.copy("COPY judged (id, client, n) FROM STDIN") as copied:
        for n in range(20):
            await copied.write_row((uuid.uuid4(), name, n))
    got = []
    async with cursor.copy("COPY (SELECT n FROM judged WHERE client = %s ORDER BY n) TO STDOUT", (name,)) as copied:
        async for row in copied.rows():
            got.append(int(row[0]))
    counts.row("copied", got, list(range(20)))
    try:
        async with cursor.copy("COPY judged (id, client, n) FROM STDIN") as copied:
            await copied.write(b"not a uuid\tx\t1\n")
        counts.row("a bad copy", "accepted", "refused")
    except errors.InvalidTextRepresentation:
        counts.checks += 1
    await connection.execute("DELETE FROM judged WHERE client = %s", (name,))


async def change_settings(client, number, round):
    client.application_name = f"psycopg-{number}-{round}"
    client.time_zone = random.choice(["UTC", "Europe/Berlin", "Asia/Tokyo"])
    await client.connection.execute(f"SET application_name = '{client.application_name}'")
    await client.connection.execute(f"SET TIME ZONE '{client.time_zone}'")


async def reset(client, number, round):
    if round % 5 == 0:
        await client.connection.execute("DEALLOCATE ALL")
        client.connection._prepared.clear()
    if round % 7 == 0:
        await client.connection.execute("DISCARD ALL")
        client.connection._prepared.clear()
        client.application_name, client.time_zone = f"psycopg-{number}", "UTC"


async def round_of(client, number, round):
    await settings(client)
    await pause()
    await prepared(client, number, round)
    await pause()
    await change_settings(client, number, round)
    await pause()
    await transaction(client, number, round)
    await pause()
    await pipeline(client, number, round)
    await settings(client)
    if round % 3 == 0:
        await large(client, round)
        if COPIES:
            await copy(client, number, round)
    await reset(client, number, round)
    await settings(client)
    await pooled(round)


pool = None


async def pooled(round):
    """Connections of the pool that others had: none sees the settings of another, which its reset undoes."""
    async with pool.connection() as connection:
        counts.row("pool", await one(connection, "SELECT %s::int", round), round)
        counts.setting("pool", await one(connection, "SHOW application_name"), "pooled")
        await connection.execute(f"SET application_name = 'pooled-{round}'")
        await pause()
        counts.setting("pool", await one(connection, "SHOW application_name"), f"pooled-{round}")


async def undo(connection):
    await connection.execute("RESET ALL")


async def main():
    global pool
    arguments = {"autocommit": True, "application_name": "pooled", "prepare_threshold": 1}
    async with AsyncConnectionPool("", min_size=2, max_size=2, kwargs=arguments, reset=undo) as pool:
        await laps(counts, open_one, round_of)


asyncio.run(main())
