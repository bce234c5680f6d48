from aurora_dsql_django import base
from django.db.backends.postgresql.base import DatabaseWrapper as PostgreSQL


class DatabaseWrapper(base.DatabaseWrapper):
    get_connection_params = PostgreSQL.get_connection_params
    get_new_connection = PostgreSQL.get_new_connection
