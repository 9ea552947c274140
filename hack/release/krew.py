"""The manifest by which krew installs `kubectl gpuward`.

Fields as krew's plugin manifest v1alpha2 documents them: one archive per platform with its
SHA-256.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import yaml

ARCHIVE = re.compile(r"kubectl-gpuward-(?P<os>linux|darwin)-(?P<arch>amd64|arm64)\.tar\.gz")
DESCRIPTION = """\
Says why a GPU node was taken out of service and what brings it back, and lets people quarantine,
hold, repair, release and pause. Needs Python 3.11 on this machine.
"""


def krew(version: str, address: str, digests: Mapping[str, str]) -> str:
    """The manifest's text; `digests` are SHA-256 by file name, others than archives are passed
    over.
    """
    platforms = []
    for name in sorted(digests):
        found = ARCHIVE.fullmatch(name)
        if found is None:
            continue
        platforms.append(
            {
                "selector": {"matchLabels": {"os": found["os"], "arch": found["arch"]}},
                "uri": f"{address}/{name}",
                "sha256": digests[name],
                "bin": "kubectl-gpuward",
            }
        )
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "gpuward"},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "Why a GPU node is gone, and what brings it back",
            "description": DESCRIPTION,
            "platforms": platforms,
        },
    }
    return yaml.safe_dump(manifest, sort_keys=False)
