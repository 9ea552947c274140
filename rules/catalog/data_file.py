"""Read data files of the packages `agent`, `remediator` and `rules`."""

import os
from typing import Final, Literal

_ROOT: Final = __file__.rsplit(os.sep, 3)[0]
# importlib.resources imports tempfile, random and zipfile; pathlib takes a third of a megabyte in
# the NVML child.


def data_file(name: str, of: Literal["agent", "remediator", "rules"] = "rules") -> bytes:
    """Return the bytes of a file in the `data` folder of a package."""
    with open(f"{_ROOT}/{of}/data/{name}", "rb") as file:  # noqa: PTH123 - see above
        return file.read()
