"""Make `rules/data/{xids,nvlink5,sxids}.json` from published catalogs and our own words.

    python -m hack.catalog.generate --catalog DIR

DIR holds `xid_catalog.csv`, `xid_nvlink5_decode.csv` and `sxid_catalog.csv` (NVIDIA's
published Xid sheet and driver headers with what peers do beside each number). Facts are selected
from them; names, descriptions and departures from NVIDIA's bucket are ours (`xid_words.yaml`).
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
DATA = HERE.parent.parent / "rules" / "data"
VERSION = "2026.11"

ARCHITECTURES = ("a100", "h100", "b100", "gb200")
NVSENTINEL = {
    "NONE": "none",
    "NONE(no bucket)": "none",
    "CONTACT_SUPPORT": "support",
    "COMPONENT_RESET": "reset",
    "RESTART_BM": "reboot",
    "RESTART_VM": "restart-vm",
    "per NVLink5 rule else CONTACT_SUPPORT": "by-rule",
    "per register decode (design 024) else CONTACT_SUPPORT": "by-registers",
    "from Xid-154 text": "by-label",
}


def read(path: Path) -> list[dict[str, str]]:
    """Read one published catalog."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def own_words(words: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Return name, description and row of each Xid in use, families spelled out."""
    own: dict[int, dict[str, Any]] = dict(words["xids"])
    for family in words["families"]:
        for xid, member in family["members"].items():
            own[xid] = {
                "name": family["name"].format(n=member),
                "says": family["says"].format(n=member),
            }
    return own


def first_branch(linkage: str) -> int | None:
    """Return the driver branch from which the Xid is followed by an Xid 154."""
    if branch := re.search(r"\bR(\d{3})\b", linkage):
        return int(branch[1])
    return 565 if linkage.startswith("yes") else None


def dcgm(system_and_result: str) -> str:
    """Return what DCGM's health watch makes of the Xid: fail, warn or nothing."""
    return system_and_result.rpartition("/")[2].lower() or "none"


def xid_rows(catalog: Path) -> list[dict[str, Any]]:
    """Return one row for each number of the catalog."""
    words = yaml.safe_load((HERE / "xid_words.yaml").read_text(encoding="utf-8"))
    own = own_words(words)
    rows = []
    for fact in read(catalog / "xid_catalog.csv"):
        xid = int(fact["number"])
        used = xid in own
        mine = own.get(xid, {"name": "Unused", "says": "Not in use on current data-centre GPUs."})
        bucket = fact["nvidia_immediate_bucket"]
        like = mine.get("row", {}).get("like") or (bucket if used else "UNUSED")
        klass, severity, level, action, closes_on = words["rows"][like]
        if xid in words["needs_context"]:
            klass = "NeedsContext"
        rows.append(
            {
                "xid": xid,
                "name": mine["name"],
                "says": mine["says"],
                "mnemonic": fact["mnemonic"].split(" / ")[0]
                if "(" not in fact["mnemonic"]
                else "",
                "used": used,
                "architectures": [a for a in ARCHITECTURES if fact[f"applies_{a}"] == "YES"],
                "immediate": bucket,
                "investigatory": fact["nvidia_investigatory_bucket"],
                "linked_from": first_branch(fact["nvidia_xid154_linkage"]),
                "class": klass,
                "severity": severity,
                "level": level,
                "action": action,
                "closes_on": closes_on,
                "needs": words["needs_context"].get(xid, ""),
                "device_plugin": "ignored" if "ignored" in fact["device_plugin"] else "unhealthy",
                "eks": "fatal" if fact["eks_nma"].startswith("Fatal") else "event",
                "dcgm": dcgm(fact["dcgm_health_4_6"]),
                "nvsentinel": NVSENTINEL[fact["nvsentinel_action"]],
            }
        )
    return rows


def bits(pattern: str) -> tuple[int, int]:
    """Return mask and value of a pattern of 32 characters 0, 1 and - (either)."""
    if len(pattern) != 32:
        raise ValueError(f"pattern {pattern!r} has {len(pattern)} characters, not 32")
    mask = int("".join("0" if bit == "-" else "1" for bit in pattern), 2)
    return mask, int(pattern.replace("-", "0"), 2)


def nvlink5_rows(catalog: Path) -> list[dict[str, Any]]:
    """Return the rules for Xid 144 to 150, patterns as [mask, value] in both layouts."""
    rows = []
    for fact in read(catalog / "xid_nvlink5_decode.csv"):
        layouts = [fact["intrinfo_pattern_v1_lt_r575"], fact["intrinfo_pattern_v2_ge_r575"]]
        statuses = [int(word, 16) for word in fact["error_status_hex"].split("/") if word]
        rule = {
            "xid": int(fact["xid"]),
            "units": fact["unit"].split("/"),
            "layouts": [bits(layout) for layout in layouts],
            "statuses": statuses,
            "immediate": fact["nvidia_immediate_bucket"],
            "investigatory": fact["nvidia_investigatory_bucket"],
        }
        rows.append(rule)
        if fact["action2"]:
            second = [fact["v1_decode_action2"], fact["v2_decode_action2"]]
            rows.append(
                rule
                | {"layouts": [bits(layout) for layout in second], "immediate": fact["action2"]}
            )
    return rows


def sxid_rows(catalog: Path) -> list[dict[str, Any]]:
    """Return number, name and published fatality of each NVSwitch error."""
    rows = []
    for fact in read(catalog / "sxid_catalog.csv"):
        fatality = fact["fatality"].split(" (")[0]
        rows.append(
            {
                "sxid": int(fact["number"]),
                "mnemonic": fact["kernel_enum"].removeprefix("NVSWITCH_ERR_HW_"),
                "fatality": {"contained/fatal": "fatal"}.get(fatality, fatality),
            }
        )
    return rows


def dump(path: Path, key: str, rows: list[dict[str, Any]]) -> None:
    """Write one row to a line, so that a change of the catalog reads well as a diff."""
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text(f'{{"version": "{VERSION}", "{key}": [\n{lines}\n]}}\n', encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Write the three catalogs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--catalog", type=Path, required=True, help="folder of the CSV files")
    catalog: Path = parser.parse_args(arguments).catalog
    try:
        dump(DATA / "xids.json", "xids", xid_rows(catalog))
        dump(DATA / "nvlink5.json", "rules", nvlink5_rows(catalog))
        dump(DATA / "sxids.json", "sxids", sxid_rows(catalog))
    except OSError as error:
        print(f"The catalog cannot be read: {error}; name the folder with --catalog.")
        return 64
    return 0


if __name__ == "__main__":
    sys.exit(main())
