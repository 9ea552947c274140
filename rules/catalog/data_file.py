"""The data files of one program (`agent/data`, `remediator/data`), and those that both share."""

import os
from typing import Final, Literal

_ROOT: Final = __file__.rsplit(os.sep, 3)[0]
# Not importlib.resources, which brings tempfile, random and zip along into every agent; nor
# pathlib, which is a third of a megabyte in the NVML child.


def data_file(name: str, of: Literal["agent", "remediator", "rules"] = "rules") -> bytes:
    """The bytes of one file."""
    with open(f"{_ROOT}/{of}/data/{name}", "rb") as file:  # noqa: PTH123 - see above
        return file.read()
