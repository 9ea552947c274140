"""`python -m hack.release notes|krew|plugin`: the parts of a release, for the workflow or by hand."""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tarfile
from pathlib import Path

from hack.release.krew import krew
from hack.release.notes import NoSectionError, notes

REPOSITORY = Path(__file__).resolve().parents[2]
# Platform tags of the wheels that the plugin's dependencies publish.
PLATFORMS = {
    "linux-amd64": "manylinux_2_28_x86_64-cp-3.11-cp311",
    "linux-arm64": "manylinux_2_28_aarch64-cp-3.11-cp311",
    "darwin-arm64": "macosx_11_0_arm64-cp-3.11-cp311",
}


def main() -> int:
    """Run one of the three; 1 with one sentence when the changelog lacks the version."""
    parser = argparse.ArgumentParser(prog="python -m hack.release", description=__doc__)
    parser.add_argument("part", choices=["notes", "krew", "plugin"])
    parser.add_argument("--version", required=True)
    parser.add_argument("--address", default="", help="krew: where the archives will lie")
    parser.add_argument("--from", dest="folder", type=Path, default=Path("dist"))
    parser.add_argument("--out", type=Path, default=Path("dist"))
    args = parser.parse_args()
    if args.part == "notes":
        try:
            sys.stdout.write(notes((REPOSITORY / "CHANGELOG.md").read_text(), args.version))
        except NoSectionError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    elif args.part == "krew":
        digests = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in args.folder.iterdir()
        }
        sys.stdout.write(krew(args.version, args.address, digests))
    else:
        for platform, tag in PLATFORMS.items():
            _plugin(args.out, args.version, platform, tag)
    return 0


def _plugin(out: Path, version: str, platform: str, tag: str) -> None:
    """One executable file by pex, in the archive that krew unpacks."""
    built = out / "kubectl-gpuward"
    (wheel,) = out.glob(f"gpuward-{version}-*.whl")
    subprocess.run(
        [
            "pex", f"{wheel}[kubectl]", "--constraints", str(REPOSITORY / "constraints.txt"),
            "--platform", tag, "--console-script", "kubectl-gpuward",
            "--python-shebang", "/usr/bin/env python3", "--output-file", str(built),
        ],
        check=True,
    )  # fmt: skip
    with tarfile.open(out / f"kubectl-gpuward-{platform}.tar.gz", "w:gz") as archive:
        archive.add(built, arcname="kubectl-gpuward")
        archive.add(REPOSITORY / "LICENSE", arcname="LICENSE")
    built.unlink()


if __name__ == "__main__":
    sys.exit(main())
