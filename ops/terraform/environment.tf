# The environment of a task, for its container definition:
#
#   environment = concat(module.forebay.environment, [{ name = "DSQL_SERVICE_NAME", value = "history" }])

variable "pool" {
  description = "Connections of one pool: DSQL_MAX_CONNS. `forebay plan` computes it for a fleet."
  type        = number
  default     = 50
}

variable "limit" {
  description = "Connections that the fleet may hold: DSQL_DISTRIBUTED_CONN_LIMIT. The cluster admits 10,000."
  type        = number
  default     = 10000
}

locals {
  environment = [
    { name = "CLUSTER_ENDPOINT", value = "${var.cluster}.dsql.${local.region}.on.aws" },

    # Reservoir configuration
    { name = "DSQL_MAX_CONNS", value = tostring(var.pool) },
    { name = "DSQL_RESERVOIR_ENABLED", value = "true" },
    { name = "DSQL_RESERVOIR_TARGET_READY", value = tostring(var.pool) },
    { name = "DSQL_RESERVOIR_LOW_WATERMARK", value = tostring(var.pool) },
    { name = "DSQL_RESERVOIR_BASE_LIFETIME", value = "11m" },
    { name = "DSQL_RESERVOIR_LIFETIME_JITTER", value = "2m" },
    { name = "DSQL_RESERVOIR_GUARD_WINDOW", value = "45s" },

    # One budget of connections and one connect rate for the fleet
    { name = "DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", value = "true" },
    { name = "DSQL_DISTRIBUTED_CONN_LEASE_TABLE", value = aws_dynamodb_table.forebay.name },
    { name = "DSQL_DISTRIBUTED_CONN_LIMIT", value = tostring(var.limit) },
    { name = "DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", value = "true" },
    { name = "DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", value = aws_dynamodb_table.forebay.name },
  ]
}

output "environment" {
  value = local.environment
}
