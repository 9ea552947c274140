"""The Dockerfile builds and its images start; needs buildah and a base image."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
BASE = "GPUWARD_BASE_IMAGE"
"""A base image in buildah's storage; see CONTRIBUTING.md."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("buildah") is None, reason="buildah is not installed"),
    pytest.mark.skipif(BASE not in os.environ, reason=f"{BASE} names no local base image"),
]


def buildah(*arguments: str) -> str:
    done = subprocess.run(
        ["buildah", "--storage-driver", "vfs", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.fixture(params=["agent", "remediator"])
def image(request: pytest.FixtureRequest) -> Iterator[str]:
    tag = f"gpuward-{request.param}"
    chosen = ("--build-arg", f"BASE={os.environ[BASE]}", "--target", request.param)
    indexes = ("-v", "/etc/pip.conf:/etc/pip.conf:ro") if Path("/etc/pip.conf").exists() else ()
    buildah(
        "bud", "--isolation", "chroot", "--network", "host", *chosen, *indexes,
        "-f", "daemonset/Dockerfile", "-t", tag, ".",
    )  # fmt: skip
    yield tag
    buildah("rmi", "--force", tag)


def test_an_image_builds_and_runs_as_nobody(image: str) -> None:
    container = buildah("from", image)
    try:
        run = ("run", "--isolation", "chroot", container)
        assert f"usage: {image}" in buildah(*run, image, "--help")
        assert "uid=65532" in buildah(*run, "id")
        assert "hack" not in buildah(*run, "ls", "/opt/gpuward/lib/python3.11/site-packages")
    finally:
        buildah("rm", container)
