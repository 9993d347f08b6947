"""A backup's file: whole or not at all, checked before anything is restored."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from portal.cli.archive import ArchiveError, Manifest, digest_of, extract_dump, read_manifest, write
from portal.cli.pgtools import environment
from portal.cli.postgres import PostgresError


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "dump"
    path.write_bytes(b"PGDMP" + bytes(range(256)) * 5000)
    return path


def manifest(dump: Path) -> Manifest:
    checksum, size = digest_of(dump)
    return Manifest(
        made_at="2026-11-01T00:00:00Z", version="0.2.0", migrations={"infra": ["0001_initial"]}, app_role="aif_app",
        system_role="aif_system", canaries=["x"], pepper="y", dump_sha256=checksum, dump_bytes=size, postgres="18.1",
    )  # fmt: skip


def test_what_was_written_is_read_again(tmp_path: Path, dump: Path) -> None:
    told, target, out = manifest(dump), tmp_path / "portal.backup", tmp_path / "out"
    write(target, told, dump)
    assert target.stat().st_mode & 0o077 == 0, "it is nobody else's to read"
    assert read_manifest(target) == told
    extract_dump(target, told, out)
    assert out.read_bytes() == dump.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dump", "out", "portal.backup"], "nothing is left over"


def test_a_file_is_never_overwritten(tmp_path: Path, dump: Path) -> None:
    target = tmp_path / "portal.backup"
    target.write_text("precious")
    with pytest.raises(ArchiveError, match="not overwritten"):
        write(target, manifest(dump), dump)
    assert target.read_text() == "precious"


@pytest.mark.parametrize("at", [0.2, 0.5, 0.99])
def test_a_damaged_dump_is_told_by_its_checksum(tmp_path: Path, dump: Path, at: float) -> None:
    target = tmp_path / "portal.backup"
    write(target, manifest(dump), dump)
    data = bytearray(target.read_bytes())
    data[int(2048 + at * dump.stat().st_size)] ^= 0xFF
    target.write_bytes(data)
    with pytest.raises(ArchiveError, match="damaged"):
        extract_dump(target, manifest(dump), tmp_path / "out")


def test_a_file_that_was_cut_off_is_told(tmp_path: Path, dump: Path) -> None:
    target = tmp_path / "portal.backup"
    write(target, manifest(dump), dump)
    target.write_bytes(target.read_bytes()[:100_000])
    with pytest.raises(ArchiveError):
        extract_dump(target, read_manifest(target), tmp_path / "out")


@pytest.mark.parametrize("content", [b"", b"no archive at all", b"PGDMP" * 500])
def test_another_file_is_no_backup(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ArchiveError, match="no backup"):
        read_manifest(path)


def test_a_tar_without_a_manifest_in_front_is_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo("other")
        entry.size = 2
        archive.addfile(entry, io.BytesIO(b"{}"))
    with pytest.raises(ArchiveError, match="does not begin with a manifest"):
        read_manifest(path)


def test_a_later_format_names_the_version_that_reads_it(tmp_path: Path, dump: Path) -> None:
    target = tmp_path / "portal.backup"
    write(target, replace(manifest(dump), format=2, version="9.0.0"), dump)
    with pytest.raises(ArchiveError, match=r"9\.0\.0"):
        read_manifest(target)


def test_a_password_goes_through_the_environment() -> None:
    found = environment("postgresql://aif_app:s3cret@db.example:6432/portal?sslmode=verify-full")
    assert found == {
        "PGHOST": "db.example", "PGPORT": "6432", "PGUSER": "aif_app", "PGPASSWORD": "s3cret",
        "PGDATABASE": "portal", "PGSSLMODE": "verify-full",
    }  # fmt: skip
    with pytest.raises(PostgresError, match="gssencmode"):
        environment("postgresql://u@h/d?gssencmode=disable")
