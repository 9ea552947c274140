"""All commands of `kubectl gpuward`, in the order of its help: to look, to steer, to operate.

They are `remediator/data/commands.json`; `more` names what adds a command's own options.
"""

from __future__ import annotations

import json
from typing import Any, Final

from remediator.kubectl import command_options
from remediator.kubectl.options import Command
from rules.catalog.data_file import data_file


def _command(row: dict[str, Any]) -> Command:
    more = row.get("more")
    given = {
        "about": "\n".join(row["about"]),
        "examples": tuple(map(tuple, row["examples"])),
        "forms": tuple(row.get("forms", ())),
        "more": getattr(command_options, more) if more else None,
    }
    return Command(**{**row, **given})


COMMANDS: Final = tuple(map(_command, json.loads(data_file("commands.json", "remediator"))))
