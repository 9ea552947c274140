"""The image: pinned by hash, built without an index address, installable from wheel and hashes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from hack.image.requirements import canonical, pins, render

REPOSITORY = Path(__file__).parents[3]
DAEMONSET = REPOSITORY / "daemonset"
DOCKERFILE = (DAEMONSET / "Dockerfile").read_text()
FILES = ("requirements.txt", "requirements-build.txt")
PACKAGES = ("agent", "remediator", "rules")


def text(name: str) -> str:
    return (DAEMONSET / name).read_text()


@pytest.mark.parametrize("name", FILES)
def test_every_requirement_has_a_hash_and_no_address(name: str) -> None:
    requirements = re.split(r"\n(?=\S)", text(name).partition("\n")[2].strip())
    assert requirements
    for requirement in requirements:
        assert re.fullmatch(
            r"[a-z0-9-]+==[^\s;@]+( \\\n    --hash=sha256:[0-9a-f]{64})+", requirement
        )


def test_the_versions_are_those_everything_was_tested_with() -> None:
    tested = pins((REPOSITORY / "constraints.txt").read_text())
    shipped = pins(text("requirements.txt"))
    assert {name: tested.get(name) for name in shipped} == shipped


def test_every_dependency_is_shipped_and_no_tool_of_development() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    shipped = pins(text("requirements.txt"))

    def named(requirements: list[str]) -> set[str]:
        return {canonical(re.split(r"[<>=!~ ;\[]", each)[0]) for each in requirements}

    assert named(project["dependencies"]) <= shipped.keys()
    assert not named(project["optional-dependencies"]["dev"]) & shipped.keys()


def test_a_package_with_a_wheel_per_platform_gets_a_hash_for_each() -> None:
    def report(digest: str) -> dict[str, object]:
        info = {"archive_info": {"hashes": {"sha256": digest}}, "url": "https://index.example/a"}
        metadata = {"name": "Some_Package", "version": "1.2"}
        return {"install": [{"metadata": metadata, "download_info": info}]}

    rendered = render([report("b" * 64), report("a" * 64)])
    assert rendered.endswith(
        f"some-package==1.2 \\\n    --hash=sha256:{'a' * 64} \\\n    --hash=sha256:{'b' * 64}\n"
    )
    assert "index.example" not in rendered


def test_the_dockerfile_copies_no_hack_and_names_no_index() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    sources = {word for line in copied for word in line.split()[:-1]}
    assert {"agent", "remediator", "rules"} <= sources
    assert not {word for word in sources if word.startswith(("hack", "tests", "."))}
    assert "--index" not in DOCKERFILE
    assert DOCKERFILE.count("--require-hashes") == 2
    assert "unchecked-hash /opt/gpuward/lib" in DOCKERFILE


def test_every_copied_path_exists() -> None:
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (REPOSITORY / source).exists(), source


def test_profile_full_looks_where_the_image_has_links() -> None:
    linked = set(re.findall(r"&& link (\w)", DOCKERFILE))
    component = yaml.safe_load((DAEMONSET / "components/full/kustomization.yaml").read_text())
    patch = yaml.safe_load(component["patches"][0]["patch"])
    spec = patch["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    (path,) = [e["value"] for e in container["env"] if e["name"] == "LD_LIBRARY_PATH"]
    assert set(path.split(":")) == {f"/opt/nvml/{name}" for name in linked}
    mounted = {m["mountPath"] for m in container["volumeMounts"]}
    assert "/driver-root" in mounted
    assert 'ln -s "/driver-root/' in DOCKERFILE


def run(*command: str | Path, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "GPUWARD_"))}
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=kept | environ,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty virtual environment after the install steps of the Dockerfile."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the hashes are those of the image's Python 3.11")
    folder = tmp_path_factory.mktemp("image")
    source, build, target = folder / "src", folder / "build", folder / "gpuward"
    source.mkdir()
    for name in PACKAGES:
        shutil.copytree(
            REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    for place in (build, target):
        venv.create(place, with_pip=True)
    steps = (
        (build, "install", "--require-hashes", "--requirement", DAEMONSET / FILES[1]),
        (build, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source),
        (target, "install", "--only-binary", ":all:", "--require-hashes", "--requirement",
         DAEMONSET / FILES[0]),
        (target, "install", "--no-deps", folder / "gpuward-0.1.0-py3-none-any.whl"),
        (target, "uninstall", "--yes", "pip", "setuptools"),
    )  # fmt: skip
    for place, *arguments in steps:
        done = run(place / "bin" / "pip", *arguments, cwd=folder)
        if "Max retries exceeded" in done.stderr or "NewConnectionError" in done.stderr:
            pytest.skip("no package index can be reached")
        assert done.returncode == 0, done.stderr
    flags = ("-q", "--invalidation-mode", "unchecked-hash", target / "lib")
    compiled = run(target / "bin" / "python", "-m", "compileall", *flags, cwd=folder)
    assert compiled.returncode == 0, compiled.stdout
    return target


@pytest.mark.slow
def test_what_is_installed_looks_at_a_machine_without_the_checkout(
    installed: Path, tmp_path: Path
) -> None:
    check = ("check", "--json", "--nvml", "off", "--kmsg", "off")
    done = run(installed / "bin" / "gpuward-agent", *check, cwd=tmp_path)
    assert done.returncode in {0, 3}, done.stderr
    assert json.loads(done.stdout)["health"] in {"Healthy", "Unknown"}
    done = run(installed / "bin" / "gpuward-remediator", "policy", "show", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["mode"] == "Shadow"


@pytest.mark.slow
def test_neither_hack_nor_an_installer_nor_a_tool_is_there(
    installed: Path, tmp_path: Path
) -> None:
    for name in ("hack", "pip", "setuptools", "pytest", "tests"):
        done = run(installed / "bin" / "python", "-c", f"import {name}", cwd=tmp_path)
        assert "ModuleNotFoundError" in done.stderr, name
    (wheel,) = installed.parent.glob("gpuward-*.whl")
    top = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == set(PACKAGES)


@pytest.mark.slow
def test_a_simulated_driver_is_refused_by_name_in_the_image(
    installed: Path, tmp_path: Path
) -> None:
    program = installed / "bin" / "gpuward-agent"
    done = run(program, "check", "--nvml", "sim:node.yaml", "--kmsg", "off", cwd=tmp_path)
    assert done.returncode == 64
    assert "Traceback" not in done.stderr
