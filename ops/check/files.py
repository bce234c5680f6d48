"""Reads every file of ops/ with a parser of its own format, and checks what a parser alone does not.

- The task definition is what ECS accepts, by AWS's own model of its API.
- Every alert has a test in which it fires and one in which it is silent.
- The four alerts that are a contract have not changed.
- Every link of the runbooks leads somewhere.
- Every alert has a summary, a description with values, and a runbook that exists.
"""

import json
import re
import sys
from pathlib import Path

import botocore.loaders
import botocore.model
import botocore.validate
import hcl2
import yaml

OPS = Path(__file__).resolve().parent.parent
DOCS = OPS.parent / "docs"
problems = []


def problem(file, what):
    problems.append(f"{file.relative_to(OPS.parent)}: {what}")


def read(file):
    text = file.read_text()
    if file.suffix == ".json":
        return json.loads(text)
    if file.suffix in (".yml", ".yaml"):
        return yaml.safe_load(text)
    if file.suffix == ".tf":
        return hcl2.loads(text)
    return None


parsed = {}
for path in sorted(OPS.rglob("*")):
    if path.is_file():
        try:
            parsed[path] = read(path)
        except Exception as error:  # noqa: BLE001, every parser has errors of its own
            problem(path, f"does not parse: {error}")

# ECS
task = OPS / "ecs/task-definition.json"
model = botocore.loaders.Loader().load_service_model("ecs", "service-2")
request = botocore.model.ServiceModel(model).operation_model("RegisterTaskDefinition").input_shape
report = botocore.validate.ParamValidator().validate(parsed[task], request)
if report.has_errors():
    problem(task, report.generate_report())
# The validator ignores what it does not know.
if unknown := set(parsed[task]) - set(request.members):
    problem(task, f"ECS does not know {sorted(unknown)}")
container = request.members["containerDefinitions"].member
for one in parsed[task]["containerDefinitions"]:
    if unknown := set(one) - set(container.members):
        problem(task, f"ECS does not know {sorted(unknown)}")

# Compose
compose = OPS / "compose/compose.yaml"
for name, service in parsed[compose]["services"].items():
    if not service.get("image") or not all(isinstance(value, str) for value in service["environment"].values()):
        problem(compose, f"{name}: it needs an image, and text for each variable")

# Terraform: what is used is declared.
declared, used = set(), set()
for path in OPS.glob("terraform/*.tf"):
    declared |= set(re.findall(r'^variable "(\w+)"', path.read_text(), re.M))
    used |= set(re.findall(r"\bvar\.(\w+)", path.read_text()))
if declared != used:
    problem(OPS / "terraform", f"variables declared and used differ: {sorted(declared ^ used)}")

# Alerts
rules = OPS / "prometheus/alerts.yml"
alerts = {rule["alert"]: rule for group in parsed[rules]["groups"] for rule in group["rules"]}
tests = [
    (case["alertname"], bool(case["exp_alerts"]))
    for file in OPS.glob("prometheus/tests/*.yml")
    for group in parsed[file]["tests"]
    for case in group.get("alert_rule_test", [])
]


# Operators rely on these four, to the letter.
CONTRACT = {
    "DSQLReservoirLow": ("dsql_reservoir_size / dsql_reservoir_target < 0.5", "5m"),
    "DSQLReservoirEmpty": ("rate(dsql_reservoir_empty_total[5m]) > 0", "2m"),
    "DSQLReservoirRefillFailures": ("rate(dsql_reservoir_refill_failures_total[5m]) > 0", "5m"),
    "DSQLGlobalLimitNearCapacity": ("dsql_distributed_conn_lease_active / dsql_distributed_conn_lease_limit > 0.9", "5m"),
}
for name, (expression, duration) in CONTRACT.items():
    rule = alerts.get(name, {})
    if (rule.get("expr"), rule.get("for"), rule.get("labels")) != (expression, duration, {"severity": "warning"}):
        problem(rules, f"{name} must be {expression} for {duration}, a warning")


def anchors(page):
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


for name, rule in alerts.items():
    for fires in (True, False):
        if (name, fires) not in tests:
            problem(rules, f"{name} has no test in which it {'fires' if fires else 'is silent'}")
    notes = rule["annotations"]
    if set(notes) != {"summary", "description", "runbook_url"}:
        problem(rules, f"{name} has other annotations: {sorted(notes)}")
    if "$labels.service" not in notes["description"] or "$labels.instance" not in notes["description"]:
        problem(rules, f"{name} does not say where")
    page, _, heading = notes["runbook_url"].partition("#")
    page = OPS.parent / page
    if not page.is_file() or heading not in anchors(page):
        problem(rules, f"{name} links {notes['runbook_url']}, which does not exist")
for unknown in sorted({name for name, _ in tests} - set(alerts)):
    problem(OPS / "prometheus/tests", f"there is no alert {unknown}")

# The index lists each page, and each alert with its page.
index = (DOCS / "runbooks/README.md").read_text() if (DOCS / "runbooks/README.md").is_file() else ""
for page in sorted((DOCS / "runbooks").glob("*.md")):
    if page.name != "README.md" and f"]({page.name}" not in index:
        problem(page, "docs/runbooks/README.md does not list it")
for name, rule in alerts.items():
    target = rule["annotations"]["runbook_url"].removeprefix("docs/runbooks/")
    if f"| [`{name}`]({target}) |" not in index:
        problem(rules, f"docs/runbooks/README.md does not list | [`{name}`]({target}) |")

# Links
for page in [*(DOCS / "runbooks").glob("*.md"), *OPS.rglob("*.md")]:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        target, _, heading = link.partition("#")
        file = page.parent / target if target else page
        if not file.exists() or (heading and heading not in anchors(file)):
            problem(page, f"links {link}, which does not exist")

for one in problems:
    print(one, file=sys.stderr)
print(f"ops: {len(parsed)} files, {len(alerts)} alerts, {len(problems)} problems")
sys.exit(bool(problems))
