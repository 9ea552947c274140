"""Write the component of each repair adapter: exactly the permission that it needs, from its data.

`python -m hack.repair_components` writes `daemonset/components/repair-*`, `--check` compares. What
an adapter asks for and what its component grants cannot differ (`rules.repair.component`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from rules.repair.adapter import ADAPTERS
from rules.repair.component import actions_of, component, folder_of, needs_component

FOLDER = Path(__file__).resolve().parents[1] / "daemonset" / "components"
_HEAD: Final = """\
# Generated from rules/data/adapters.json by `python -m hack.repair_components`; change \
that instead.
# What adapter {name} needs. The policy must name it too: this alone asks for nothing.
"""


def rendered() -> dict[str, str]:
    """File under `daemonset/components` to its text."""
    return {
        f"{folder_of(name)}/{file}": _HEAD.format(name=name) + text
        for name, adapter in ADAPTERS.items()
        if needs_component(actions_of(adapter))
        for file, text in component(name, actions_of(adapter)).items()
    }


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
