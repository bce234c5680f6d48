"""SQLAlchemy: AWS's dialect with psycopg, its own with psycopg2 and asyncpg, pools, sessions, and Alembic's migrations."""

import asyncio
import os
import random
import time
import uuid

import sqlalchemy as sa
from alembic.ddl.postgresql import PostgresqlImpl
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from lap import CONNECTIONS, Counts
from threads import laps, migrate

counts = Counts()


class Base(orm.DeclarativeBase):
    pass


class Visit(Base):
    __tablename__ = "sqlalchemy_visits"
    id: orm.Mapped[uuid.UUID] = orm.mapped_column(primary_key=True, default=uuid.uuid4)
    site: orm.Mapped[str]
    path: orm.Mapped[str | None]
    stars: orm.Mapped[int | None]


def url(driver):
    host, port = os.environ["PGHOST"], int(os.environ["PGPORT"])
    return sa.URL.create(driver, os.environ["PGUSER"], os.environ["PGPASSWORD"], host, port, os.environ["PGDATABASE"])


POOL = {"pool_size": CONNECTIONS, "pool_pre_ping": True}
NAME = {"connect_args": {"application_name": "sqlalchemy"}}
ENGINES = [
    # The dialect alone: the function that comes with it signs tokens, which a gateway does not want.
    sa.create_engine(url("auroradsql+psycopg"), **POOL, **NAME),
    sa.create_engine(url("auroradsql+psycopg2"), **POOL, **NAME),
    sa.create_engine(url("postgresql+psycopg"), use_native_hstore=False, **POOL, **NAME),
]
asynchronous = create_async_engine(
    url("postgresql+asyncpg"), **POOL, connect_args={"server_settings": {"application_name": "sqlalchemy"}}
)


def sqlstate(error):
    return getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)


class AuroraDSQLImpl(PostgresqlImpl):
    """Alembic wants to know what AWS's dialect is like."""

    __dialect__ = "auroradsql"
    transactional_ddl = False


def migrations(engine):
    """Alembic, with one change in each transaction."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        do = Operations(MigrationContext.configure(connection))
        columns = sa.Column("id", sa.Uuid, primary_key=True), sa.Column("site", sa.Text, nullable=False)
        do.create_table("sqlalchemy_visits", *columns)
        do.add_column("sqlalchemy_visits", sa.Column("path", sa.Text))
        do.add_column("sqlalchemy_visits", sa.Column("stars", sa.Integer))
        do.create_index("sqlalchemy_visits_site", "sqlalchemy_visits", ["site"])
        # Another connection may be behind each statement. None of them has failed because of what was changed here.
        do.create_table("sqlalchemy_changes", sa.Column("id", sa.Uuid, primary_key=True))
        for number in range(40):
            do.add_column("sqlalchemy_changes", sa.Column(f"c{number}", sa.Integer))
            connection.execute(sa.text("SELECT 'x'"))
            connection.execute(sa.text(f"SELECT c{number} FROM sqlalchemy_changes WHERE c{number} = :n"), {"n": number})
    # AWS's dialect does not read all that this version wants to know of a column.
    found = {column["name"] for column in sa.inspect(ENGINES[2]).get_columns("sqlalchemy_visits")}
    assert found == {"id", "site", "path", "stars"}, found


def again(session_of, work):
    for attempt in range(10):
        try:
            with session_of.begin() as session:
                return work(session)
        except sa.exc.DBAPIError as error:
            if sqlstate(error) != "40001" or attempt == 9:
                raise
            time.sleep(random.random() * 0.02)


def round_of(number, round):
    site = f"sqlalchemy-{number}-{round}"
    session_of = orm.sessionmaker(ENGINES[round % len(ENGINES)])
    with session_of() as session:
        counts.setting("application_name", session.scalar(sa.text("SHOW application_name")), "sqlalchemy")
    again(session_of, lambda session: session.add_all([Visit(site=site, path=f"/{n}", stars=n) for n in range(40)]))
    key = uuid.uuid4()
    again(session_of, lambda session: session.add(Visit(id=key, site=site, stars=0)))

    def add(session):
        session.get(Visit, key).stars += 1

    for _ in range(3):
        again(session_of, add)
    with session_of() as session:
        counts.row("added", session.get(Visit, key).stars, 3)
        counts.row("summed", session.scalar(sa.select(sa.func.sum(Visit.stars)).where(Visit.site == site)), 783)
        # Not with yield_per: it declares a cursor, which the service does not have.
        rows = session.scalars(sa.select(Visit).where(Visit.site == site).order_by(Visit.stars))
        counts.row("read", len(list(rows)), 41)
    try:
        with session_of.begin() as session:
            session.execute(sa.update(Visit).where(Visit.site == site).values(stars=-1))
            session.execute(sa.insert(Visit).values(id=key, site=site))
        counts.row("a key twice", "accepted", "refused")
    except sa.exc.DBAPIError as error:
        counts.row("a key twice", sqlstate(error), "23505")
    with session_of() as session:
        wrong = sa.select(sa.func.count()).where(Visit.site == site, Visit.stars == -1)
        counts.row("rolled back", session.scalar(wrong), 0)
    removed = again(session_of, lambda session: session.execute(sa.delete(Visit).where(Visit.site == site)).rowcount)
    counts.row("deleted", removed, 41)
    LOOP.run_until_complete(asynchronously(f"{site}-a")) if number == 0 else None


async def asynchronously(site):
    """asyncpg prepares every statement by name, and SQLAlchemy keeps them."""
    session_of = async_sessionmaker(asynchronous)

    async def work(n):
        async with session_of.begin() as session:
            session.add(Visit(site=site, stars=n))
        async with session_of() as session:
            got = await session.scalar(sa.select(Visit.stars).where(Visit.site == site, Visit.stars == n))
            counts.row("asyncpg", got, n)
            counts.setting("asyncpg", await session.scalar(sa.text("SHOW application_name")), "sqlalchemy")

    await asyncio.gather(*(work(n) for n in range(3)))
    async with session_of.begin() as session:
        await session.execute(sa.delete(Visit).where(Visit.site == site))


LOOP = asyncio.new_event_loop()
migrate(lambda: migrations(ENGINES[0]))
laps(counts, round_of)
