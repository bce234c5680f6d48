"""Resolves the name of the local cluster.

libpq has PGHOSTADDR for this. asyncpg has nothing like it and asks the resolver, so the resolver gives the answer here.
Python imports this file at its start, because the script puts its directory on PYTHONPATH.
"""

import os
import socket

ENDPOINT = os.environ.get("CLUSTER_ENDPOINT")
ADDRESS = os.environ.get("PGHOSTADDR")

if ENDPOINT and ADDRESS:
    resolve = socket.getaddrinfo

    def getaddrinfo(host, *args, **kwargs):
        name = host.decode() if isinstance(host, bytes) else host
        return resolve(ADDRESS if name == ENDPOINT else host, *args, **kwargs)

    socket.getaddrinfo = getaddrinfo
