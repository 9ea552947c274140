"""`python -m hack.crds` writes daemonset/crds/*.yaml and docs/crds.md; `--check` only compares."""

import sys
from pathlib import Path

import yaml

from hack.crds.generate import crds
from hack.crds.page import page
from hack.generated import write_or_check

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "daemonset" / "crds"
PAGE = ROOT / "docs" / "crds.md"
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
    files = {FOLDER / name: text for name, text in rendered().items()}
    return write_or_check("hack.crds", {**files, PAGE: page(crds())})


if __name__ == "__main__":
    sys.exit(main())
