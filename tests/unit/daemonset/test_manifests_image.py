"""The images: pinned by hash, built without an index address, installable from wheel and
hashes.
"""

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

REPOSITORY = Path(__file__).parents[3]
DAEMONSET = REPOSITORY / "daemonset"
DOCKERFILE = (DAEMONSET / "Dockerfile").read_text()
IMAGES = ("agent", "remediator")
FILES = tuple(f"requirements-{name}.txt" for name in (*IMAGES, "build"))
MOST_MB = {"agent": 45, "remediator": 130}
NEEDED_BY_H2 = {"hpack", "hyperframe"}
PACKAGES = ("agent", "remediator", "rules")


def text(name: str) -> str:
    return (DAEMONSET / name).read_text()


def canonical(name: str) -> str:
    """A project's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    """Version by canonical name."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, re.MULTILINE)
    return {canonical(name): version for name, version in found}


@pytest.mark.parametrize("name", FILES)
def test_every_requirement_has_a_hash_and_no_address(name: str) -> None:
    listed = re.sub(r"^#.*\n", "", text(name), flags=re.MULTILINE)
    requirements = re.split(r"\n(?=\S)", listed.strip())
    assert requirements
    for requirement in requirements:
        assert re.fullmatch(
            r"[a-z0-9-]+==[^\s;@]+( \\\n    --hash=sha256:[0-9a-f]{64})+", requirement
        )


def test_each_image_has_its_dependencies_and_the_agents_no_more() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def named(requirements: list[str]) -> set[str]:
        return {canonical(re.split(r"[<>=!~ ;\[]", each)[0]) for each in requirements}

    agent = pins(text("requirements-agent.txt"))
    remediator = pins(text("requirements-remediator.txt"))
    assert agent.keys() == named(project["dependencies"]) | NEEDED_BY_H2
    assert agent.keys() | named(extras["remediator"]) <= remediator.keys()
    tools = named(extras["dev"]) | named(extras["terminal"])
    assert not tools & remediator.keys()


def test_the_dockerfile_copies_no_hack_and_names_no_index() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    sources = {each for line in copied for each in line.split()[:-1]}
    assert {"agent", "remediator", "rules"} <= sources
    assert not {each for each in sources if each.startswith(("hack", "tests", "."))}
    assert "--index" not in DOCKERFILE
    assert DOCKERFILE.count("--require-hashes") == 3
    assert "/bytecode.py /opt/gpuward/lib" in DOCKERFILE


def test_profile_full_uses_the_links_of_the_image() -> None:
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
        [str(each) for each in command],
        cwd=cwd,
        env=kept | environ,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our wheel, built as the Dockerfile does."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the hashes are those of the image's Python 3.11")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "src"
    source.mkdir()
    for name in PACKAGES:
        shutil.copytree(
            REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    place = folder / "build"
    venv.create(place, with_pip=True)
    pip(
        place, "install", "--require-hashes", "--requirement", DAEMONSET / "requirements-build.txt"
    )
    pip(place, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source)
    (built,) = folder.glob("gpuward-*.whl")
    return built


def pip(place: Path, *arguments: str | Path) -> None:
    done = run(place / "bin" / "pip", *arguments, cwd=place)
    if "Max retries exceeded" in done.stderr or "NewConnectionError" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr


def install(image: str, wheel: Path, place: Path) -> Path:
    """An empty virtual environment after the steps of the Dockerfile's stage `install-IMAGE`."""
    (steps,) = re.findall(rf"AS install-{image}\n.*?\nRUN (.+?)\n(?=\n)", DOCKERFILE, re.DOTALL)
    steps = steps.replace("\\\n", " ").replace("/opt/gpuward", str(place))
    requirements = DAEMONSET / f"requirements-{image}.txt"
    steps = steps.replace("/requirements.txt", str(requirements))
    steps = steps.replace(" /bytecode.py ", f" {DAEMONSET / 'bytecode.py'} ")
    steps = steps.replace("/wheels/*.whl", str(wheel)).replace("/imported", f"{place}.imported")
    steps = steps.replace("&& python ", f"&& {sys.executable} ")
    steps = re.sub(r"^python ", f"{sys.executable} ", steps).replace(
        "| python", f"| {sys.executable}"
    )
    done = run("sh", "-c", steps, cwd=wheel.parent)
    if "Max retries exceeded" in done.stderr or "NewConnectionError" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture(scope="module")
def agent(wheel: Path) -> Path:
    return install("agent", wheel, wheel.parent / "agent")


@pytest.fixture(scope="module")
def remediator(wheel: Path) -> Path:
    return install("remediator", wheel, wheel.parent / "remediator")


def megabytes(place: Path) -> float:
    return sum(f.lstat().st_size for f in place.rglob("*") if not f.is_dir()) / 1e6


@pytest.mark.slow
def test_both_installations_stay_within_their_size(agent: Path, remediator: Path) -> None:
    sizes = {"agent": megabytes(agent), "remediator": megabytes(remediator)}
    assert {name for name, size in sizes.items() if size > MOST_MB[name]} == set(), sizes


@pytest.mark.slow
def test_the_agents_image_checks_a_machine(agent: Path, tmp_path: Path) -> None:
    check = ("check", "--json", "--nvml", "off", "--kmsg", "off")
    done = run(agent / "bin" / "gpuward-agent", *check, cwd=tmp_path)
    assert done.returncode in {0, 3}, done.stderr
    assert json.loads(done.stdout)["health"] in {"Healthy", "Unknown"}
    for program, command in (("gpuward-remediator", "run"), ("kubectl-gpuward", "fleet")):
        done = run(agent / "bin" / program, command, cwd=tmp_path)
        assert "gpuward[remediator]" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_remediators_image_reads_its_policy(remediator: Path, tmp_path: Path) -> None:
    done = run(remediator / "bin" / "gpuward-remediator", "policy", "show", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["mode"] == "Shadow"
    absent = ("run", "--kubeconfig", "/does/not/exist")
    done = run(remediator / "bin" / "gpuward-remediator", *absent, cwd=tmp_path)
    assert done.returncode == 64
    assert "does not exist" in done.stderr


@pytest.mark.slow
def test_the_image_has_no_hack_and_no_installer(
    agent: Path, remediator: Path, wheel: Path, tmp_path: Path
) -> None:
    for place in (agent, remediator):
        for name in ("hack", "pip", "setuptools", "pytest", "tests", "rich"):
            done = run(place / "bin" / "python", "-c", f"import {name}", cwd=tmp_path)
            assert "ModuleNotFoundError" in done.stderr, name
    top = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == set(PACKAGES)
