"""An export on disk: a folder or a tar, read with bounds, written without surprises."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Final

from rules.backtest.archive import MAX_FILE_BYTES, Archive, ArchiveError, from_files

FOLDER: Final = "gpuward-export"
_MOST_MEMBERS: Final = 1_000


def write_tar(files: Mapping[str, bytes], to: IO[bytes]) -> None:
    """A gzipped tar of one folder."""
    with tarfile.open(fileobj=to, mode="w:gz") as tar:
        for name, body in files.items():
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size = len(body)
            member.mode = 0o600
            member.mtime = int(time.time())
            tar.addfile(member, io.BytesIO(body))


def read_archive(path: Path) -> Archive:
    """The export at a path; ArchiveError with one sentence where it is none."""
    try:
        files = _folder(path) if path.is_dir() else _tar(path)
    except (OSError, tarfile.TarError, EOFError) as error:
        remedy = "name the folder or archive that kubectl gpuward export wrote"
        raise ArchiveError(f"{path} cannot be read: {_why(error)}; {remedy}") from error
    try:
        return from_files(files)
    except ArchiveError as error:
        raise ArchiveError(f"{path}: {error}") from error


def _why(error: Exception) -> str:
    """What is wrong in a few words: Python lists what each way to unpack it said."""
    match error:
        case OSError(strerror=str(said)) if said:
            return said
        case tarfile.ReadError() if "could not be opened" in str(error):
            return "it is no archive"
        case _:
            return f"it is damaged or cut off ({' '.join(str(error).split())[:200]})"


def _folder(path: Path) -> dict[str, bytes]:
    found = {}
    inner = path / FOLDER
    for file in sorted((inner if inner.is_dir() else path).glob("*.json")):
        if file.stat().st_size > MAX_FILE_BYTES:
            raise ArchiveError(f"{file} is larger than any export")
        found[file.name] = file.read_bytes()
    return found


def _tar(path: Path) -> dict[str, bytes]:
    """Nothing is unpacked to disk: a member's name leads nowhere but into a dictionary."""
    found = {}
    with tarfile.open(path, mode="r:*") as tar:
        for number, member in enumerate(tar):
            name = PurePosixPath(member.name).name
            if number >= _MOST_MEMBERS or member.size > MAX_FILE_BYTES:
                raise ArchiveError(f"{path} holds more than any export")
            if member.isfile() and name.endswith(".json"):
                body = tar.extractfile(member)
                found[name] = body.read(MAX_FILE_BYTES) if body is not None else b""
    return found
