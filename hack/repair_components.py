"""Write the component of each repair adapter: exactly the permission that it needs, from its data.

`python -m hack.repair_components` writes `daemonset/components/repair-*`, `--check` compares. What
an adapter asks for and what its component grants cannot differ (`rules.repair.component`).
"""

import sys
from pathlib import Path
from typing import Final

from hack.generated import write_or_check
from rules.repair.adapter import ADAPTERS
from rules.repair.component import actions_of, component, folder_of, needs_component

FOLDER = Path(__file__).resolve().parents[1] / "daemonset" / "components"
_HEAD: Final = """\
# Generated from rules/data/adapters.json by `python -m hack.repair_components`; change \
that instead.
# Permissions of repair adapter {name}. The policy must name the adapter too.
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
    files = {FOLDER / name: text for name, text in rendered().items()}
    return write_or_check("hack.repair_components", files)


if __name__ == "__main__":
    sys.exit(main())
