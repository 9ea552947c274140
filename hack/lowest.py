"""Print the lowest versions that pyproject.toml declares, as pins for pip, and the pins of
constraints.txt for what only tests need: `pip install $(python -m hack.lowest)`.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("cryptography", "hypothesis", "jsonschema", "pytest", "pytest-asyncio")
"""What the tests of I/O import in addition to the programs' dependencies."""
_FLOOR = re.compile(r"^([A-Za-z0-9._-]+)>=([0-9.]+)$")


def pins() -> list[str]:
    """`name==version` for each dependency of the three programs; ValueError for one that
    declares no lowest version.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    found = []
    programs = (*extras["remediator"], *extras["kubectl"], *extras["terminal"])
    for declared in (*project["dependencies"], *programs):
        if declared.startswith("gpuward["):
            continue  # an extra that holds another
        floor = _FLOOR.match(declared)
        if floor is None:
            raise ValueError(f"{declared} has no lowest version")
        found.append(f"{floor[1]}=={floor[2]}")
    known = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    return found + [pin for pin in known if pin.partition("==")[0] in TOOLS]


if __name__ == "__main__":
    sys.stdout.write("\n".join(pins()) + "\n")
