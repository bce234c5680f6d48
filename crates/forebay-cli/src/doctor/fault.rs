//! The known faults: their names, causes and remedies, in one table that the manual repeats.

use super::check::Check;

/// A known fault.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Its name in JSON.
    pub(crate) name: &'static str,
    /// The check that finds it.
    pub(crate) check: Check,
    pub(crate) cause: &'static str,
    pub(crate) remedy: &'static str,
}

macro_rules! faults {
    ($($constant:ident $name:literal $check:ident $cause:literal $remedy:literal;)*) => {
        $(pub(crate) const $constant: &Fault = &Fault {
            name: $name,
            check: Check::$check,
            cause: $cause,
            remedy: $remedy,
        };)*

        /// All of them, in the order of the manual.
        #[cfg(test)]
        pub(crate) const ALL: &[&Fault] = &[$($constant),*];
    };
}

faults! {
    NO_ENDPOINT "no-endpoint" Configuration
        "nothing says where the cluster is"
        "set CLUSTER_ENDPOINT to its host, and REGION if the host's name does not tell it";
    INVALID_SETTING "invalid-setting" Configuration
        "a service does not start with this value"
        "set the variable to what is allowed";
    LIFETIME_ABOVE_LIMIT "lifetime-above-limit" Configuration
        "Aurora DSQL ends a session after 60 minutes, also while it is in use"
        "lower DSQL_RESERVOIR_BASE_LIFETIME until base + jitter/2 is below 60m; the default is 11m";
    LIMIT_ABOVE_QUOTA "limit-above-quota" Configuration
        "the cluster refuses connections (53300) before the fleet's own limit does"
        "lower the limit; if AWS has raised the cluster's quota, give it with --quota";
    RATE_ABOVE_LIMIT "rate-above-limit" Configuration
        "the cluster admits 100 new connections a second, and 1,000 at once after a quiet time"
        "lower the rate or the burst, or the cluster refuses connections (53400)";
    SHARE_ABOVE_LIMIT "share-above-limit" Configuration
        "one instance may open more connections than the whole fleet may hold"
        "lower DSQL_MAX_CONNS, or raise DSQL_DISTRIBUTED_CONN_LIMIT";
    REPAIRED "repaired-setting" Configuration
        "the value is not allowed, and a service uses another one"
        "correct the variable";
    IGNORED "ignored-setting" Configuration
        "no service reads it, or what it belongs to is off"
        "correct its name, remove it, or turn on what it belongs to";
    REGION_MISMATCH "region-mismatch" Configuration
        "tokens are signed for this region, and the host's name tells another one"
        "unset REGION and AWS_REGION, or set REGION to that of the host";
    WRONG_ENDPOINT "wrong-endpoint" Dns
        "a typo, a deleted cluster, or a name that only a VPC resolves"
        "compare CLUSTER_ENDPOINT with the endpoint in the AWS console";
    NO_RESOLVER "no-resolver" Dns
        "the resolver of this machine does not answer"
        "check the resolver (/etc/resolv.conf) and the DNS settings of the VPC";
    CLOSED_PORT "closed-port" Tcp
        "nothing listens on this port, or a firewall rejects it"
        "check PGPORT (5432 on AWS) and PGHOSTADDR, and that the cluster is active";
    SILENT_ADDRESS "silent-address" Tcp
        "packets are dropped, or a proxy without a server behind it accepts them"
        "check security groups, network ACLs, routes, VPC endpoints and proxies";
    UNREACHABLE "unreachable-address" Tcp
        "this machine has no way to that network"
        "check routes, NAT and the firewall of this machine";
    UNTRUSTED_CERTIFICATE "untrusted-certificate" Tls
        "an authority that is not trusted signed it: a proxy reads the traffic, or it is another server"
        "set PGSSLROOTCERT to the right authority, unset it for AWS, or bypass the proxy";
    EXPIRED_CERTIFICATE "expired-certificate" Tls
        "the certificate is not valid now, or the clock of this machine is wrong"
        "check the clock (see check clock); if it is right, renew the certificate";
    EXPIRING_CERTIFICATE "expiring-certificate" Tls
        "nobody has renewed the certificate yet"
        "renew it; AWS renews its own";
    OTHER_SERVER "other-server" Tls
        "the address belongs to another server or another cluster"
        "compare CLUSTER_ENDPOINT and PGHOSTADDR with the cluster";
    NO_TLS "no-tls" Tls
        "it is not Aurora DSQL: that always uses TLS"
        "check CLUSTER_ENDPOINT, PGHOSTADDR and PGPORT";
    BROKEN_TLS "broken-tls" Tls
        "the server or a machine in between ended the handshake"
        "check proxies and firewalls; check that the server is Aurora DSQL";
    NO_CREDENTIALS "no-credentials" Credentials
        "the SDK finds no variables, profile, web identity or role that it can use"
        "give this process a role, a profile (AWS_PROFILE) or keys";
    UNAVAILABLE_CREDENTIALS "unavailable-credentials" Credentials
        "the source of the credentials does not answer"
        "check the metadata service of the instance or the container, and the network to AWS STS";
    EXPIRED_CREDENTIALS "expired-credentials" Credentials
        "nobody has renewed them, or the clock of this machine is wrong"
        "renew them, for example `aws sso login`, or use a role; check the clock";
    REFUSED_CREDENTIALS "refused-credentials" Credentials
        "AWS does not accept them: deleted or mistyped keys, or a wrong clock"
        "replace the keys; check the clock (see check clock)";
    NO_TOKEN "no-token" Token
        "the token could not be signed"
        "check the credentials";
    ACCESS_DENIED "access-denied" Connect
        "the credentials lack the permission to connect, or the region is wrong, or a role other than admin is not mapped to them"
        "for admin, allow dsql:DbConnectAdmin on the cluster; for another role, dsql:DbConnect and `AWS IAM GRANT role TO 'arn'`; check REGION";
    UNKNOWN_ROLE "unknown-role" Connect
        "the cluster has no such database role"
        "correct CLUSTER_USER or PGUSER, or create it: `CREATE ROLE name WITH LOGIN`, then `AWS IAM GRANT`";
    UNKNOWN_DATABASE "unknown-database" Connect
        "a cluster has one database, postgres"
        "unset PGDATABASE";
    REFUSED_SIGNATURE "refused-signature" Connect
        "the clock of this machine differs from AWS's by minutes"
        "synchronize the clock (chrony, systemd-timesyncd)";
    TOO_MANY_CONNECTIONS "too-many-connections" Connect
        "the cluster holds as many connections as it may (53300)"
        "lower DSQL_MAX_CONNS or DSQL_DISTRIBUTED_CONN_LIMIT, stop idle services, or raise the quota";
    RATE_EXCEEDED "rate-exceeded" Connect
        "new connections come too fast for the cluster (53400): a restart of many services, or a loop of failing connects"
        "wait; share a rate (DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED), or lower DSQL_CONNECTION_RATE_LIMIT";
    WAKING "waking-cluster" Connect
        "the cluster was idle and is starting"
        "wait half a minute, and run the doctor again";
    FAILED_CONNECT "failed-connect" Connect
        "the server ended the session, or answered something unexpected"
        "read the server's words above; check that it is Aurora DSQL";
    WRONG_CLOCK "wrong-clock" Clock
        "AWS refuses signatures whose date is minutes off, and expiry times are wrong"
        "synchronize the clock of this machine (chrony, systemd-timesyncd)";
    NO_LOCATION "no-table-location" Tables
        "there is no region for DynamoDB, or its address is invalid"
        "set AWS_REGION, or correct AWS_ENDPOINT_URL_DYNAMODB or --dynamodb-endpoint";
    MISSING_TABLE "missing-table" Tables
        "it was not created, or has another name, region or account"
        "run `forebay lease setup --table NAME`, or correct the name";
    WRONG_TABLE "wrong-table" Tables
        "the table was made for something else"
        "use another name, and run `forebay lease setup --table NAME`";
    INACTIVE_TABLE "inactive-table" Tables
        "it is being created or deleted, or was archived"
        "wait, or create it again";
    PROVISIONED_TABLE "provisioned-table" Tables
        "provisioned capacity throttles when many instances start together"
        "switch the table to on-demand";
    NO_TTL "no-ttl" Tables
        "items that nobody needs are never deleted, and the table grows"
        "run `forebay lease setup --table NAME`, which enables it on ttl_epoch";
    NO_PERMISSION "no-permission" Tables
        "the policy of this role does not allow the action on the table"
        "allow it: ops/iam/instance.json has the policy";
    REFUSED_BY_TABLE "refused-by-table" Tables
        "DynamoDB does not accept the credentials or the date of the signature"
        "check the credentials and the clock (see check clock)";
    THROTTLED_TABLE "throttled-table" Tables
        "more requests than its capacity"
        "switch the table to on-demand";
    UNREACHABLE_TABLE "unreachable-table" Tables
        "the address is wrong, or there is no network path to it: no NAT, no VPC endpoint"
        "check AWS_ENDPOINT_URL_DYNAMODB if it is set, then the VPC endpoint for DynamoDB, routes and NAT";
    SLOW_TABLE "slow-table" Tables
        "the table is in another region, or the network is slow"
        "use a table in the region of the services";
    DRIFTED_COUNTER "drifted-counter" Tables
        "instances have crashed in mode counter, and their leases still count"
        "run `forebay lease reconcile`; in mode ledger this does not happen";
    DAMAGED_LEDGER "damaged-ledger" Tables
        "an item was changed by hand or by another program"
        "run `forebay lease reset`";
    LIMIT_REACHED "limit-reached" Tables
        "the fleet holds as many connections as it may, and nobody can open more"
        "scale down, lower DSQL_MAX_CONNS, or raise DSQL_DISTRIBUTED_CONN_LIMIT";
    OVERDUE_INSTANCE "overdue-instance" Tables
        "it has crashed or cannot reach the table; its slots are freed after a lease"
        "if it stays: `forebay lease evict INSTANCE`";
    OTHER_LIMIT "other-limit" Tables
        "the table was made with another limit than this configuration has"
        "set the same limit everywhere, then `forebay lease reset`";
    UNREACHABLE_SERVICE "unreachable-service" Service
        "the service does not run, or its status page is elsewhere"
        "check the address, and that the service serves its status page";
    LOCKED_SERVICE "locked-service" Service
        "the page is served with a token, and the doctor has none or another one"
        "set DSQL_DESK_TOKEN as the service has it, or give --status-token-file FILE";
    OTHER_NAME "other-name" Service
        "without a token, a page answers only requests to localhost or a loopback address; or a proxy forbids it"
        "run the doctor on the machine of the service, with http://127.0.0.1 and the port, or serve the page with a token";
    UNUSABLE_TOKEN "unusable-token" Service
        "the file or the variable does not hold the token of a status page"
        "give --status-token-file a file with one line: DSQL_DESK_TOKEN of the service";
    NOT_A_STATUS "not-a-status" Service
        "the address is not that of a status page"
        "give the address of the page, such as http://127.0.0.1:9464 (DSQL_DESK_LISTEN of the service)";
    NO_POOLS "no-pools" Service
        "it has not opened its pools yet, or serves them on another page"
        "look again in a minute; if it stays, read the log of the service";
    OTHER_VERSION "other-version" Service
        "the service uses another release"
        "use the doctor of the same release";
    FAILING_POOL "failing-pool" Service
        "its opens fail: the details have the last error"
        "where the service runs, run the checks dns, tcp, tls and connect, and do what they say";
    LOCKED_OUT_POOL "locked-out-pool" Service
        "the cluster refuses its tokens, or they cannot be signed"
        "where the service runs, run the checks credentials, token and connect, and do what they say";
    THROTTLED_POOL "throttled-pool" Service
        "the cluster refuses its opens: the services of this cluster hold too many connections, or open them too fast"
        "lower DSQL_MAX_CONNS or DSQL_CONNECTION_RATE_LIMIT of these services, or let them share both (docs/fleet.md)";
    LEASELESS_POOL "leaseless-pool" Service
        "it lacks connections, and the fleet's table gives it no lease or no permit"
        "run check tables where the service runs, and do what it says";
    EXHAUSTED_POOL "exhausted-pool" Service
        "all of its connections are in use"
        "find callers that keep a connection while they wait for something else; if there are none, raise DSQL_MAX_CONNS";
    CLOSED_POOL "closed-pool" Service
        "the service has closed it, as at a shutdown"
        "nothing if the service is to stop; otherwise read its log, and start it again";
    CUT_OFF_POOL "cut-off-pool" Service
        "the service gets no answer from the shared table, and follows DSQL_DISTRIBUTED_AWAY_POLICY"
        "run check tables where the service runs, and do what it says; do not restart the service before";
    BUSY_POOL "unready-pool" Service
        "connections are missing, and are being opened"
        "look again in a minute; if connections are still missing, raise the rate that limits the pool (docs/tuning.md)";
}
