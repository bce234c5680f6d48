"""ADBC's and pyarrow's clients against flight-local. Each function is run by name, with the server in the environment."""

import os
import sys
import threading
from datetime import date, datetime

import adbc_driver_flightsql.dbapi as flightsql
import pyarrow
import pyarrow.flight
from adbc_driver_flightsql import DatabaseOptions
from adbc_driver_manager import OperationalError, ProgrammingError

URL = os.environ["FLIGHT_SQL_URL"]


def connect(**options):
    return flightsql.connect(URL, autocommit=True, **options)


def one(connection, sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()


def statements():
    """Types, parameters, counts and errors."""
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, born DATE, at TIMESTAMP, raw BLOB, x DOUBLE)")
        rows = [
            (1, "ann", date(2026, 11, 15), datetime(2026, 11, 15, 20, 15), b"\x00\xff", 0.5),
            (2, None, None, None, None, None),
        ]
        cursor.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", rows)
        assert cursor.rowcount == 2, cursor.rowcount
        cursor.execute("SELECT * FROM t ORDER BY id")
        assert cursor.fetchall() == rows
        cursor.execute("SELECT name FROM t WHERE id = ?", (1,))
        assert cursor.fetchall() == [("ann",)]
        cursor.execute("SELECT 1 + 1 AS n WHERE false")
        table = cursor.fetch_arrow_table()
        assert (table.num_rows, table.column_names) == (0, ["n"])
        for sql, code in [("SELEC 1", "INVALID_ARGUMENT"), ("INSERT INTO t (id) VALUES (1)", "ALREADY_EXISTS")]:
            try:
                cursor.execute(sql)
            except ProgrammingError as error:
                assert str(error).startswith(code), error
            else:
                raise AssertionError(sql)
        assert one(connection, "SELECT count(*) FROM t") == (2,)


def sessions():
    """A connection is a session: temporary tables, transactions, options."""
    with connect() as connection, flightsql.connect(URL) as other:
        one(connection, "CREATE TEMP TABLE mine (n INT)")
        one(connection, "CREATE TABLE ours (n INT)")
        try:
            one(other, "SELECT * FROM mine")
        except ProgrammingError as error:
            assert "no such table: mine" in str(error), error
        else:
            raise AssertionError("another session's table")
        other.rollback()
        with other.cursor() as cursor:
            cursor.execute("INSERT INTO ours VALUES (1)")
            other.rollback()
            cursor.execute("INSERT INTO ours VALUES (2)")
            other.commit()
        assert one(connection, "SELECT sum(n) FROM ours") == (2,)
        options = connection.adbc_connection
        options.set_options(**{"adbc.flight.sql.session.optionbool.query_only": "true"})
        options.set_options(**{"adbc.flight.sql.session.option.busy_timeout_ms": 7})
        assert options.get_option_int("adbc.flight.sql.session.option.busy_timeout_ms") == 7
        try:
            one(connection, "INSERT INTO ours VALUES (3)")
        except Exception as error:
            assert "readonly" in str(error), error
        else:
            raise AssertionError("a session that may only read has written")
        try:
            options.set_options(**{"adbc.flight.sql.session.option.colour": "red"})
        except ProgrammingError as error:
            assert "colour" in str(error), error
        else:
            raise AssertionError("an option that is none")


def ingest():
    """A table from Arrow, in each mode."""
    table = pyarrow.table({"id": range(100_000), "name": [str(id) for id in range(100_000)]})
    with connect() as connection, connection.cursor() as cursor:
        assert cursor.adbc_ingest("t", table, mode="create") == 100_000
        assert cursor.adbc_ingest("t", table.slice(0, 10), mode="append") == 10
        assert one(connection, "SELECT count(*), count(DISTINCT id) FROM t") == (100_010, 100_000)
        assert cursor.adbc_ingest("t", table.slice(0, 10), mode="replace") == 10
        try:
            cursor.adbc_ingest("t", table, mode="create")
        except ProgrammingError as error:
            assert "exists" in str(error), error
        else:
            raise AssertionError("a table was made twice")


def catalog():
    """What ADBC asks a server about itself."""
    with connect() as connection:
        one(connection, "CREATE TABLE author (id INTEGER PRIMARY KEY, name TEXT)")
        one(connection, "CREATE VIEW names AS SELECT name FROM author")
        assert connection.adbc_get_info()["vendor_name"] == "flight-local"
        assert connection.adbc_get_table_types() == ["table", "view"]
        schema = connection.adbc_get_table_schema("author")
        assert schema.names == ["id", "name"] and schema.field("id").type == pyarrow.int64()
        objects = connection.adbc_get_objects(depth="all", catalog_filter="main").read_all().to_pylist()
        tables = objects[0]["catalog_db_schemas"][0]["db_schema_tables"]
        assert [(table["table_name"], table["table_type"]) for table in tables] == [("author", "table"), ("names", "view")]
        assert [column["column_name"] for column in tables[0]["table_columns"]] == ["id", "name"]


def cancellation():
    """A statement that is cancelled from another thread; the session goes on."""
    with connect() as connection, connection.cursor() as cursor:
        one(connection, "CREATE TEMP TABLE mine (n INT)")
        timer = threading.Timer(0.3, cursor.adbc_cancel)
        timer.start()
        try:
            cursor.execute("SELECT sleep_ms(600000)")
            cursor.fetchall()
        except OperationalError as error:
            assert "CANCELLED" in str(error).upper(), error
        else:
            raise AssertionError("it should have been cancelled")
        assert one(connection, "SELECT count(*) FROM mine") == (0,)


def progress():
    """A statement that the driver polls."""
    with connect() as connection, connection.cursor() as cursor:
        statement = cursor.adbc_statement
        statement.set_options(**{"adbc.statement.exec.incremental": "true"})
        statement.set_sql_query("SELECT max(progress(value, 20) + sleep_ms(30) * 0) FROM generate_series(1, 20)")
        # The driver polls until there is something to read.
        partitions, _, _ = statement.execute_partitions()
        assert statement.get_option_float("adbc.statement.exec.progress") == 1.0
        cursor.adbc_read_partition(partitions[0])
        assert cursor.fetchall() == [(20.0,)]


def endpoints():
    """A result in parts, at several places."""
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT value FROM generate_series(1, 1000)")
        assert [row[0] for row in cursor.fetchall()] == list(range(1, 1001))


def login():
    """Over TLS, with a password."""
    root = open(os.environ["FLIGHT_SQL_CA_FILE"]).read()
    trust = {DatabaseOptions.TLS_ROOT_CERTS.value: root}
    with connect(db_kwargs={**trust, "username": "ann", "password": "secret"}) as connection:
        assert one(connection, "SELECT 1") == (1,)
    for wrong in [{**trust}, {**trust, "username": "ann", "password": "wrong"}]:
        try:
            with connect(db_kwargs=wrong) as connection:
                one(connection, "SELECT 1")
        except Exception as error:
            assert "nauthenticated" in str(error) or "UNAUTHENTICATED" in str(error), error
        else:
            raise AssertionError("it should have been refused")


def flight():
    """pyarrow's own client, without Flight SQL: actions, and what is unknown."""
    with pyarrow.flight.connect(URL.replace("grpc://", "grpc+tcp://")) as client:
        names = [action.type for action in client.list_actions()]
        assert "CancelFlightInfo" in names and "CloseSession" in names, names
        assert list(client.list_flights()) == []
        try:
            list(client.do_action(("Dance", b"")))
        except pyarrow.ArrowInvalid as error:
            assert "Dance" in str(error), error
        else:
            raise AssertionError("an action that is none")


globals()[sys.argv[1]]()
