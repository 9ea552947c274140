"""Write the component of each repair adapter: exactly the permission that it needs, from its data.

`python -m hack.repair_components` writes `daemonset/components/repair-*`, `--check` compares. What an
adapter asks for and what its component grants cannot differ.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from rules.repair.adapter import REPAIR_CONDITIONS

FOLDER = Path(__file__).resolve().parents[1] / "daemonset" / "components"
POLICY: Final = "gpuward-remediator-unknown"
_HEAD: Final = """\
# Generated from rules/repair/adapter.py by `python -m hack.repair_components`; change that instead.
"""


def rendered() -> dict[str, str]:
    """File under `daemonset/components` to its text."""
    return {"repair-node-conditions/kustomization.yaml": _node_conditions()}


def _node_conditions() -> str:
    listed = ", ".join(f"'{kind}'" for kind in REPAIR_CONDITIONS)
    return f"""{_HEAD}\
# The Node conditions that ask others for a repair. The policy must say so too (`repair`): this alone
# asks for nothing.
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
patches:
  - target: {{kind: ValidatingAdmissionPolicy, name: {POLICY}}}
    patch: |-
      - op: test
        path: /spec/variables/0/name
        value: repairs
      - op: replace
        path: /spec/variables/0/expression
        value: "[{listed}]"
"""


def main() -> int:
    """Write or compare; 1 when a checked-in file differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    args = parser.parse_args()
    stale = []
    for name, text in rendered().items():
        path = FOLDER / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not args.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    for name in stale:
        print(f"{name}: {'differs from the adapters' if args.check else 'written'}")
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
