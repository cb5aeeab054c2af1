"""Write what is made in this directory: the dashboard, and the operator's form of the rules.

    python -m k8s.monitoring.make

`llm-gateway.json` comes from `dashboard.yaml`, `prometheusrule.yaml` from `rules.yaml`. Both are
checked in, so that nobody needs Python to apply them; a test holds them to their sources.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from k8s.monitoring.grafana import dashboard

HERE = Path(__file__).parent
RULES = HERE / "rules.yaml"
DASHBOARD = HERE / "llm-gateway.json"
PROMETHEUS_RULE = HERE / "prometheusrule.yaml"

_HEAD = """\
# Made from rules.yaml by `python -m k8s.monitoring.make`: change that, then make this anew.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: llm-gateway
  labels:
    app.kubernetes.io/name: llm-gateway
spec:
"""


def made() -> dict[Path, str]:
    """Give each file that is made here with its text."""
    rows = yaml.safe_load((HERE / "dashboard.yaml").read_text(encoding="utf-8"))
    # The rules as text, so that their comments come along.
    groups = RULES.read_text(encoding="utf-8").partition("\ngroups:\n")[2]
    lines = (f"  {line}".rstrip() for line in f"groups:\n{groups}".splitlines())
    return {
        DASHBOARD: json.dumps(dashboard(rows), indent=2) + "\n",
        PROMETHEUS_RULE: _HEAD + "\n".join(lines) + "\n",
    }


if __name__ == "__main__":
    for path, text in made().items():
        path.write_text(text, encoding="utf-8")
