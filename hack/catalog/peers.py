"""What other programs do with each Xid, in short codes: `peers.json` from the published catalog.

    python -m hack.catalog.peers --catalog DIR

Facts for `docs/xid.md` alone; what the agent itself shows (`explain`) stands in the rules'
catalog.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from hack.catalog.generate import read

PEERS_FILE: Final = Path(__file__).parent / "peers.json"
NONE: Final = "-"

COLUMNS: Final = {
    "dra": "DRA",
    "gpud": "GPUd",
    "gke": "GKE",
    "aks": "AKS",
    "healthagent": "healthagent",
    "gcm": "gcm",
    "awslabs": "awslabs",
    "hyperpod": "HyperPod",
    "nebius": "Nebius",
    "imbue": "Imbue",
    "sichek": "SiChek",
}
"""Column of `peers.json` and its head in the page."""


def codes(fact: dict[str, str]) -> dict[str, str]:
    """Return what each peer does with the Xid of one row of the catalog."""
    return {
        "dra": _first(fact["dra_driver"]),
        "gpud": _gpud(fact),
        "gke": "condition" if fact["gke_node_condition"] else _gke(fact["gke_plugin_device"]),
        "aks": "fail" if fact["azure_nhc_aks"] else NONE,
        "healthagent": _first(fact["azure_healthagent"]),
        "gcm": fact["meta_gcm"].lower() or NONE,
        "awslabs": _first(fact["awslabs_hpc_healthcheck"]),
        "hyperpod": _hyperpod(fact["hyperpod_hma"]),
        "nebius": fact["nebius_old_hc_critical"] or NONE,
        "imbue": fact["imbue_hardware"] or NONE,
        "sichek": fact["sichek"] or NONE,
    }


def peers(catalog: Path) -> dict[str, dict[str, str]]:
    """Return the codes of every Xid by its number."""
    return {fact["number"]: codes(fact) for fact in read(catalog / "xid_catalog.csv")}


def _first(text: str) -> str:
    """The first word: `error` of "error (default)", `taint` of "taint NAME NoSchedule"."""
    words = text.split()
    return words[0].rstrip(":").lower() if words else NONE


def _gpud(fact: dict[str, str]) -> str:
    if fact["gpud_health_state"] != "Unhealthy":
        return _first(fact["gpud_event_type"])
    repair = fact["gpud_repair_actions"].split("|")[0]
    return {"REBOOT_SYSTEM": "reboot", "HARDWARE_INSPECTION": "inspection"}.get(
        repair, "unhealthy"
    )


def _gke(device: str) -> str:
    return "device" if device.startswith("Unhealthy") else NONE


def _hyperpod(text: str) -> str:
    return next((word for word in ("Reboot", "Replace") if word in text), NONE).lower()


def main(arguments: list[str] | None = None) -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--catalog", type=Path, required=True, help="folder of the CSV files")
    catalog: Path = parser.parse_args(arguments).catalog
    try:
        found = peers(catalog)
    except OSError as error:
        print(f"The catalog cannot be read: {error}; name the folder with --catalog.")
        return 64
    lines = ",\n".join(f"{json.dumps(xid)}: {json.dumps(row)}" for xid, row in found.items())
    PEERS_FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
