"""`python -m hack.release notes|krew|plugin`: the parts of a release, for the workflow or by
hand.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


class NoSectionError(Exception):
    """The changelog has nothing under that version; the text names what it has."""


def notes(changelog: str, version: str) -> str:
    """What stands under `## VERSION`, with or without brackets and date; NoSectionError."""
    parts = re.split(r"^## +", changelog, flags=re.MULTILINE)[1:]
    sections = {_version(part): part.partition("\n")[2].strip() for part in parts}
    if not sections.get(version):
        known = ", ".join(sections) or "nothing"
        raise NoSectionError(
            f"CHANGELOG.md has no section {version} (it has {known}); move what stands under "
            f"Unreleased below a heading '## {version} - DATE'."
        )
    return sections[version] + "\n"


def _version(section: str) -> str:
    return section.split()[0].strip("[]")


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


REPOSITORY = Path(__file__).resolve().parents[2]
PYTHON = "3.11"
# Platform tags of the wheels that the plugin's dependencies publish.
PLATFORMS = {
    "linux-amd64": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    "linux-arm64": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
    "darwin-arm64": ("macosx_11_0_arm64", "macosx_12_0_arm64"),
}
LAUNCHER = f"""\
#!/bin/sh
# The libraries beside it are compiled for one Python.
here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")" && pwd)
command -v python{PYTHON} >/dev/null || {{
\techo "kubectl gpuward needs python{PYTHON} on PATH; or: pipx install 'gpuward[kubectl]'" >&2
\texit 1
}}
PYTHONPATH=$here/lib exec python{PYTHON} -m remediator.kubectl.cli "$@"
"""


class MissingError(Exception):
    """What a part is made of is not there; one sentence with what to do."""


def main() -> int:
    """Run one of the three; 1 with one sentence where something it is made of is missing."""
    project = _project()
    parser = argparse.ArgumentParser(prog="python -m hack.release", description=__doc__)
    parser.add_argument("part", choices=["notes", "krew", "plugin"])
    parser.add_argument("--version", default=project["version"], help="default: %(default)s")
    parser.add_argument("--address", default="", help="krew: where the archives will lie")
    parser.add_argument("--from", dest="folder", type=Path, default=Path("dist"),
                        help="krew: where the archives are (default: %(default)s)")  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("dist"),
                        help="plugin: where the wheel is and the archives come "
                        "(default: %(default)s)")  # fmt: skip
    args = parser.parse_args()
    try:
        if args.part == "notes":
            sys.stdout.write(notes((REPOSITORY / "CHANGELOG.md").read_text(), args.version))
        elif args.part == "krew":
            sys.stdout.write(_krew(args.version, args.address, args.folder))
        else:
            wheel = _wheel(args.out, args.version)
            for platform, tags in PLATFORMS.items():
                _plugin(args.out, wheel, platform, tags)
    except (NoSectionError, MissingError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return found


def _krew(version: str, address: str, folder: Path) -> str:
    archives = sorted(folder.glob("kubectl-gpuward-*.tar.gz"))
    if not address or not archives:
        lacks = "an archive" if address else "--address, where the archives will lie"
        raise MissingError(
            f"the manifest needs {lacks}; `python -m hack.release plugin` makes the archives "
            f"in {folder}"
        )
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in archives}
    return krew(version, address, digests)


def _wheel(folder: Path, version: str) -> Path:
    found = sorted(folder.glob(f"gpuward-{version}-*.whl"))
    if not found:
        raise MissingError(
            f"{folder} has no wheel of {version}; `pip wheel --no-deps --wheel-dir {folder} .` "
            "makes it"
        )
    return found[0]


def _plugin(out: Path, wheel: Path, platform: str, tags: tuple[str, ...]) -> None:
    """The plugin with its libraries, in the archive that krew unpacks."""
    project = _project()
    wanted = project["dependencies"] + project["optional-dependencies"]["remediator"]
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", f"--target={built / 'lib'}"]
        pip += ["--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}"]
        pip += [f"--platform={tag}" for tag in tags]
        pip += [f"--constraint={REPOSITORY / 'constraints.txt'}", "--no-compile"]
        subprocess.run([*pip, *wanted], check=True)
        subprocess.run([*pip, "--no-deps", "--upgrade", str(wheel)], check=True)
        shutil.rmtree(built / "lib" / "bin", ignore_errors=True)
        launcher = built / "kubectl-gpuward"
        launcher.write_text(LAUNCHER)
        launcher.chmod(0o755)
        shutil.copy(REPOSITORY / "LICENSE", built)
        with tarfile.open(out / f"kubectl-gpuward-{platform}.tar.gz", "w:gz") as archive:
            for path in sorted(built.iterdir()):
                archive.add(path, arcname=path.name)


if __name__ == "__main__":
    sys.exit(main())
