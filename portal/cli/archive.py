"""A backup as one file: a tar of ``manifest.json`` and ``database.dump`` (pg_dump's custom format). No Django.

The manifest is read before anything is restored. It holds no secret: what is encrypted in the database stays so, and
the keys are not in it. ``canaries`` are known words encrypted with each key that was in use; whoever restores must be
able to read every one of them, or kubeconfigs in the dump could never be read again.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

FORMAT = 1
MANIFEST, DUMP = "manifest.json", "database.dump"
_LARGEST_MANIFEST = 4 * 1024 * 1024
_CHUNK = 1024 * 1024


class ArchiveError(RuntimeError):
    """The file is no backup of ours, is damaged, or can't be written; the message says what and what to do."""


@dataclass(frozen=True)
class Manifest:
    """What a backup says of itself.

    Attributes:
        made_at: RFC 3339, UTC; the instant of the snapshot.
        version: of the portal that made it.
        migrations: app → names that were applied.
        app_role, system_role: names of the roles that the dump gives rights to.
        canaries: one for each encryption key, the newest first.
        pepper: digest of a known word under the pepper of API tokens.
        dump_sha256, dump_bytes: of the dump.
        rows: table → rows at the snapshot, to be compared after a restore.
    """

    made_at: str
    version: str
    migrations: dict[str, list[str]]
    app_role: str
    system_role: str
    canaries: list[str]
    pepper: str
    dump_sha256: str
    dump_bytes: int
    postgres: str
    rows: dict[str, int] = field(default_factory=dict)
    format: int = FORMAT


def digest_of(path: Path) -> tuple[str, int]:
    """sha256 and size of a file."""
    found, size = hashlib.sha256(), 0
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK):
            found.update(chunk)
            size += len(chunk)
    return found.hexdigest(), size


def write(target: Path, manifest: Manifest, dump: Path) -> None:
    """Put both into ``target``, which appears whole or not at all, readable by our user only.

    Raises:
        ArchiveError: there is a file of that name.
    """
    if target.exists():
        raise ArchiveError(f"{target} is there already. It is not overwritten: give another name.")
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as handle, tarfile.open(fileobj=handle, mode="w") as archive:
            text = json.dumps(asdict(manifest), indent=1, sort_keys=True).encode()
            entry = tarfile.TarInfo(MANIFEST)
            entry.size, entry.mode = len(text), 0o600
            archive.addfile(entry, io.BytesIO(text))
            archive.add(dump, arcname=DUMP, recursive=False, filter=_anonymous)
            handle.flush()
        # A link, not a rename: it fails where somebody has made the file meanwhile.
        os.link(unfinished, target)
    except OSError as error:
        raise ArchiveError(f"{target} can't be written: {error.strerror}.") from error
    finally:
        unfinished.unlink(missing_ok=True)


def read_manifest(source: Path) -> Manifest:
    """The manifest of a backup.

    Raises:
        ArchiveError: the file is none, or of a format that this version does not know.
    """
    try:
        with tarfile.open(source, mode="r:") as archive:
            member = archive.next()
            handle = archive.extractfile(member) if member is not None and member.name == MANIFEST else None
            if handle is None or member is None or member.size > _LARGEST_MANIFEST:
                raise ArchiveError(f"{source} is no backup of the portal: it does not begin with a manifest.")
            data: dict[str, Any] = json.loads(handle.read())
    except (tarfile.TarError, ValueError) as error:
        raise ArchiveError(f"{source} is no backup of the portal, or is damaged ({error}).") from error
    except OSError as error:
        raise ArchiveError(f"{source} can't be read: {error.strerror}.") from error
    return _manifest(source, data)


def _manifest(source: Path, data: Mapping[str, Any]) -> Manifest:
    if data.get("format") != FORMAT:
        raise ArchiveError(
            f"{source} has the format {data.get('format')!r}, this version reads {FORMAT}. Restore it with the version "
            f"that made it ({data.get('version', 'not named')})."
        )
    try:
        return Manifest(**data)
    except TypeError as error:
        raise ArchiveError(f"{source}: the manifest is not complete ({error}).") from error


def extract_dump(source: Path, manifest: Manifest, target: Path) -> None:
    """Write the dump to ``target`` and compare its checksum.

    Raises:
        ArchiveError: it is damaged.
    """
    try:
        with tarfile.open(source, mode="r:") as archive:
            handle = archive.extractfile(DUMP)
            if handle is None:
                raise ArchiveError(f"{source} has no {DUMP}.")
            _copy(handle, target)
    except (tarfile.TarError, KeyError, EOFError) as error:
        raise ArchiveError(f"{source} is damaged: {error}.") from error
    found, size = digest_of(target)
    if (found, size) != (manifest.dump_sha256, manifest.dump_bytes):
        raise ArchiveError(
            f"{source} is damaged: the dump has {size} bytes and the sha256 {found[:12]}…, the manifest says "
            f"{manifest.dump_bytes} bytes and {manifest.dump_sha256[:12]}…. Take another copy."
        )


def _copy(handle: IO[bytes], target: Path) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as written:
        while chunk := handle.read(_CHUNK):
            written.write(chunk)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o600
    return entry
