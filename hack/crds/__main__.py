"""`python -m hack.crds` writes daemonset/crds/*.yaml anew; `--check` only compares."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

from hack.crds.generate import crds

FOLDER = Path(__file__).resolve().parents[2] / "daemonset" / "crds"
HEADER = "# Generated from the types in rules/ by `python -m hack.crds`; change those instead.\n"


class _Plain(yaml.CSafeDumper):
    """Writes repeated parts out instead of YAML anchors, which people cannot read."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def rendered() -> dict[str, str]:
    """File name to text."""
    texts = {
        name: HEADER + yaml.dump(crd, Dumper=_Plain, sort_keys=False, width=100)
        for name, crd in crds().items()
    }
    names = yaml.safe_dump({"resources": sorted(texts)})
    texts["kustomization.yaml"] = (
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n" + names
    )
    return texts


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
            path.write_text(text)
    for name in stale:
        print(f"{name}: {'differs from the types' if args.check else 'written'}")
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
