"""Codes of a verdict in plain words: what would close an incident, and what would repair it. Pure."""

from __future__ import annotations

from typing import Final

from rules.catalog.reason import Action, ClosesKind, ClosesOn

_CLOSES: Final = {
    ClosesKind.RESET: "closes once the agent sees that the GPU was reset (or the node rebooted) "
    "and works",
    ClosesKind.REBOOT: "closes once the agent sees that the node was rebooted and its GPUs work",
    ClosesKind.HUMAN: "closes once a person says repaired and the agent sees nothing against it",
}
_REPAIR: Final = {
    Action.NONE: "nothing to repair",
    Action.RESTART_APP: "restart the program; the GPU is not at fault",
    Action.RESET_GPU: "reset the GPU (nvidia-smi -r), or reboot the node",
    Action.RESTART_NODE: "reboot the node",
    Action.POWER_CYCLE: "power the node off and on; a reboot is not enough",
    Action.REPLACE_NODE: "replace the GPU or the node: open a case with the vendor",
    Action.INVESTIGATE: "a person looks at it: the evidence does not say what would help",
    Action.DRAIN_P2P: "end what uses GPU to GPU traffic, then reset the GPU",
    Action.RECOVER_IMEX_DOMAIN: "recover the IMEX domain of the rack",
    Action.RESTART_FABRIC_MANAGER: "restart the fabric manager",
    Action.RUN_DIAGNOSTICS: "run diagnostics (gpuward-agent validate, or dcgmi diag -r 3)",
    Action.CHECK_MECHANICALS: "check seating, cables and cooling",
    Action.UPDATE_FIRMWARE: "update the firmware",
}


def closes(text: str) -> str:
    """What ends an incident; the code itself where a newer agent wrote one not known here."""
    try:
        ends = ClosesOn.parse(text)
    except ValueError:
        return f"closes on {text}" if text else ""
    if ends.kind is ClosesKind.SILENCE:
        return f"closes by itself {str(ends)[8:-1]} after it was last seen"
    if ends.kind is ClosesKind.STATE:
        return f"closes when {ends.count} of the last {ends.window} readings of {ends.signal} are good"
    return _CLOSES[ends.kind]


def repair(action: str) -> str:
    """What would repair it; the code itself where it is not known here."""
    return next((words for known, words in _REPAIR.items() if known == action), action)
