"""Python's clients against dsql-local. Each function is run by name, with the cluster in the environment."""

import os
import sys
import urllib.request
from datetime import datetime, timezone
from uuid import UUID

import boto3
import psycopg

HOST = os.environ["CLUSTER_ENDPOINT"]
REGION = os.environ["AWS_REGION"]


def token(admin=True):
    client = boto3.client("dsql", region_name=REGION)
    if admin:
        return client.generate_db_connect_admin_auth_token(HOST, REGION)
    return client.generate_db_connect_auth_token(HOST, REGION)


def connect(password, user="admin", **more):
    # Address, port, sslmode and authority come from the environment, as for any program that uses libpq.
    return psycopg.connect(host=HOST, user=user, password=password, dbname="postgres", **more)


def tokens():
    """boto3 signs, psycopg connects, by both negotiations."""
    for negotiation in ["postgres", "direct"]:
        with connect(token(), sslnegotiation=negotiation) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    # A newer protocol than the server's is negotiated down.
    with connect(token(), max_protocol_version="latest") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with connect(token(admin=False), user="app") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    for user, password in [("app", token()), ("admin", token(admin=False)), ("admin", "nonsense")]:
        refusal = refused(password, user)
        assert "unable to accept connection, access denied" in refusal and "HINT" not in refusal, refusal


def expired():
    """The cluster's clock is a second beyond the token's end."""
    refusal = refused(token(), "admin")
    assert "access denied" in refusal and "HINT:  Signature expired: " in refusal, refusal


def refused(password, user):
    try:
        connect(password, user=user)
    except psycopg.OperationalError as error:
        return str(error)
    raise AssertionError("it should have been refused")


def statements():
    """Types, parameters, transactions and pipelines of psycopg."""
    # Without autocommit, psycopg's inner transactions would be savepoints, which DSQL has not.
    with connect(token(), autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE t (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), n int, name text, at timestamptz, ok bool)"
        )
        at = datetime(2026, 1, 31, 12, 30, 0, 250000, tzinfo=timezone.utc)
        with connection.transaction():
            for n in range(10):
                connection.execute("INSERT INTO t (n, name, at, ok) VALUES (%s, %s, %s, %s)", (n, f"n{n}", at, n > 4))
        for binary in [False, True]:
            with connection.cursor(binary=binary) as cursor:
                row = cursor.execute("SELECT id, n, name, at, ok FROM t WHERE n = %s", (7,)).fetchone()
                assert isinstance(row[0], UUID) and row[1:] == (7, "n7", at, True), row
        try:
            with connection.transaction():
                connection.execute("DELETE FROM t")
                raise psycopg.Rollback()
        except psycopg.Rollback:
            pass
        with connection.pipeline():
            cursors = [connection.execute("SELECT %s::int * 2", (n,)) for n in range(20)]
        assert [cursor.fetchone()[0] for cursor in cursors] == [2 * n for n in range(20)]
        try:
            with connection.pipeline():
                connection.execute("INSERT INTO t (n) VALUES (%s)", (99,))
                connection.execute("INSERT INTO nowhere VALUES (1)")
                connection.execute("INSERT INTO t (n) VALUES (%s)", (100,))
            raise AssertionError("there is no such table")
        except psycopg.errors.UndefinedTable:
            pass
        # One failed, so nothing of the pipeline was kept.
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (10,)
        try:
            with connection.cursor().copy("COPY t FROM STDIN"):
                pass
            raise AssertionError("COPY should have been refused")
        except psycopg.errors.FeatureNotSupported as error:
            assert error.sqlstate == "0A000"


def connector():
    """AWS's own connector: alone, and as a pool that runs a transaction again after a conflict."""
    import aurora_dsql_psycopg

    where = {"host": HOST, "region": REGION, "user": "admin", "dbname": "postgres"}
    with aurora_dsql_psycopg.connect(**where) as connection:
        connection.execute("CREATE TABLE c (n int)")
    with aurora_dsql_psycopg.create_pool(kwargs=where, min_size=2, max_size=4, retry=True) as pool:
        control = os.environ["DSQL_LOCAL_CONTROL"]
        urllib.request.urlopen(control + "/faults", data=b"conflict:n=2").read()
        attempts = []

        def work(connection):
            attempts.append(1)
            connection.execute("INSERT INTO c VALUES (1)")

        pool.run_transaction(work)
        with pool.connection() as connection:
            assert connection.execute("SELECT count(*) FROM c").fetchone() == (1,)
    assert len(attempts) == 3, attempts


if __name__ == "__main__":
    globals()[sys.argv[1]]()
