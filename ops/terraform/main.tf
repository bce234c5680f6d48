# The table that a fleet shares its budget through, and the policies for those who use it.
#
#   module "forebay" {
#     source  = "./ops/terraform"
#     table   = "forebay"
#     cluster = "abcdefghijklmnopqrstuvwxyz"
#   }

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

variable "table" {
  description = "Name of the table: DSQL_DISTRIBUTED_CONN_LEASE_TABLE, DSQL_DISTRIBUTED_RATE_LIMITER_TABLE."
  type        = string
  default     = "forebay"
}

variable "cluster" {
  description = "Identifier of the Aurora DSQL cluster: the first part of its host name."
  type        = string
}

data "aws_region" "here" {}
data "aws_caller_identity" "me" {}

locals {
  # From an attribute that every version of the provider has.
  region = data.aws_region.here.id
  placeholders = {
    region  = local.region
    account = data.aws_caller_identity.me.account_id
    table   = var.table
    cluster = var.cluster
  }
}

# The same that `forebay lease setup` makes. A cold start writes far more than an idle fleet: no capacity fits both.
resource "aws_dynamodb_table" "forebay" {
  name         = var.table
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "pk"

  attribute {
    name = "pk"
    type = "S"
  }

  ttl {
    attribute_name = "ttl_epoch"
    enabled        = true
  }
}

# For the role of the tasks or instances. Without `admin` as the user, or without mode `counter`, drop those statements.
resource "aws_iam_policy" "instance" {
  name   = "${var.table}-instance"
  policy = templatefile("${path.module}/../iam/instance.json", local.placeholders)
}

# For people: `forebay lease` and `forebay limiter`.
resource "aws_iam_policy" "operator" {
  name   = "${var.table}-operator"
  policy = templatefile("${path.module}/../iam/operator.json", local.placeholders)
}

output "table" {
  value = aws_dynamodb_table.forebay.name
}

output "instance_policy_arn" {
  value = aws_iam_policy.instance.arn
}

output "operator_policy_arn" {
  value = aws_iam_policy.operator.arn
}
