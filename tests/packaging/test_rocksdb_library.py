"""cqstore-rocksdb: what its wheels are made of, and what is refused."""

import base64
import csv
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.machinery import ModuleSpec
from pathlib import Path

import cqstore_rocksdb
import library_wheel
import make_wheels
import pytest
from library_wheel import Pin, UnfitError, make_wheel, pinned
from packaging.metadata import Metadata
from packaging.utils import parse_wheel_filename

from tests.kit.pages import ROOT

LIBRARY = b"\x7fELF, as far as anybody looks" * 1000
PIN = Pin("librocksdbjni-linux64.so", "manylinux_2_12_x86_64", hashlib.sha256(LIBRARY).hexdigest())
NOT_EQUAL = "its SHA-256 should be [0-9a-f]{64}, and is [0-9a-f]{64}"


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a small jar, which is the pinned one here."""
    path = tmp_path / "rocksdbjni-9.8.4.jar"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(PIN.member, LIBRARY)
    found = pinned()[0], hashlib.sha256(path.read_bytes()).hexdigest(), [PIN]
    for module in (library_wheel, make_wheels):
        monkeypatch.setattr(module, "pinned", lambda: found)
    return path


def test_a_wheel_is_what_installers_take_for_one(jar: Path, tmp_path: Path) -> None:
    path = make_wheel(jar, PIN, tmp_path / "dist")
    name, version, _, tags = parse_wheel_filename(path.name)
    assert (name, str(version), {str(tag) for tag in tags}) == (
        "cqstore-rocksdb", cqstore_rocksdb.__version__, {"py3-none-manylinux_2_12_x86_64"},
    )  # fmt: skip
    with zipfile.ZipFile(path) as wheel:
        info = f"{path.name.split('-py3')[0]}.dist-info"
        files = {entry: wheel.read(entry) for entry in wheel.namelist()}
    reported = Metadata.from_email(files[f"{info}/METADATA"], validate=True)
    assert reported.name == "cqstore-rocksdb"
    licences = {entry for entry in files if entry.startswith(f"{info}/licenses/")}
    assert {f"{info}/licenses/{each}" for each in reported.license_files or ()} == licences
    rows = {row[0]: row for row in csv.reader(files[f"{info}/RECORD"].decode().splitlines())}
    assert rows.keys() == files.keys()
    for entry, data in files.items():
        if not entry.endswith("/RECORD"):
            expected_hash = base64.urlsafe_b64decode(rows[entry][1].removeprefix("sha256=") + "=")
            assert (expected_hash, int(rows[entry][2])) == (
                hashlib.sha256(data).digest(),
                len(data),
            )
    assert files["cqstore_rocksdb/librocksdb.so.9.8.4"] == LIBRARY
    assert {entry for entry in files if entry.startswith("cqstore_rocksdb/")} == {
        f"cqstore_rocksdb/{each}" for each in ("__init__.py", "py.typed", "librocksdb.so.9.8.4")
    }


def test_the_same_jar_gives_the_same_bytes(jar: Path, tmp_path: Path) -> None:
    first = make_wheel(jar, PIN, tmp_path / "one")
    os.utime(jar, (0, 0))
    assert make_wheel(jar, PIN, tmp_path / "two").read_bytes() == first.read_bytes()
    with zipfile.ZipFile(first) as wheel:  # two of one second would be equal by chance
        entries = wheel.infolist()
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {oct(entry.external_attr >> 16) for entry in entries} == {"0o100644", "0o100755"}


def test_another_jar_and_another_library_are_refused(jar: Path, tmp_path: Path) -> None:
    other = Pin(PIN.member, PIN.tag, "0" * 64)
    with pytest.raises(UnfitError, match=rf"\.jar!{PIN.member}: {NOT_EQUAL}"):
        make_wheel(jar, other, tmp_path / "dist")
    with jar.open("ab") as file:
        file.write(b"\0")
    with pytest.raises(UnfitError, match=rf"{jar.name}: {NOT_EQUAL}"):
        make_wheel(jar, PIN, tmp_path / "dist")
    assert not (tmp_path / "dist").exists()


def with_spark(monkeypatch: pytest.MonkeyPatch, folder: Path | None) -> None:
    origin = None if folder is None else str(folder / "__init__.py")
    spec = ModuleSpec("pyspark", None, origin=origin)
    monkeypatch.setattr(make_wheels, "find_spec", {"pyspark": spec}.get)


def with_maven(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    (folder / "bin").mkdir()
    maven = folder / "bin" / "mvn"
    maven.write_text(f"#!/bin/sh\n{script}\n")
    maven.chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")


def test_pysparks_jar_is_taken_where_it_is_the_pinned_one(
    jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "spark" / "jars" / jar.name
    inside.parent.mkdir(parents=True)
    shutil.copy(jar, inside)
    with_spark(monkeypatch, tmp_path / "spark")
    out = tmp_path / "out"
    out.mkdir()
    with_maven(monkeypatch, tmp_path, f'for word; do last=$word; done; cp {jar} "{out}"')
    assert make_wheels.jar_at_hand(out) == inside
    inside.write_bytes(b"another version")
    found = make_wheels.jar_at_hand(out)
    assert (found.parent, found.read_bytes()) == (out, jar.read_bytes())


@pytest.mark.usefixtures("jar")
def test_where_no_jar_is_a_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_spark(monkeypatch, None)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(make_wheels, "platform_pin", lambda pins: pins[0])
    for words in (["--install"], ["--out", str(tmp_path / "dist")]):
        assert make_wheels.main(words) == 1
        said = capsys.readouterr().err
        assert "org.rocksdb:rocksdbjni:9.8.4 is not in pyspark's jars" in said
        assert "Maven is not installed" in said
    with_maven(monkeypatch, tmp_path, "echo '[ERROR] the network is away'; exit 1")
    assert make_wheels.main(["--install"]) == 1
    assert "it says: [ERROR] the network is away\n" in capsys.readouterr().err
    monkeypatch.setattr(make_wheels, "platform_pin", lambda _: None)
    assert make_wheels.main(["--install"]) == 0
    assert "no library fits this machine" in capsys.readouterr().err


def test_mavens_jar_must_be_the_pinned_one(
    jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_spark(monkeypatch, None)
    copied = 'for word; do last=$word; done; echo other > "${last#-DoutputDirectory=}"/'
    with_maven(monkeypatch, tmp_path, copied + jar.name)
    monkeypatch.setattr(make_wheels, "platform_pin", lambda pins: pins[0])
    assert make_wheels.main(["--install"]) == 1
    assert "its SHA-256 should be" in capsys.readouterr().err


def test_a_tag_is_held_against_the_symbols_of_the_library() -> None:
    reported = (
        " 0x1 (NEEDED)  Shared library: [libc.so.6]\n 0x1 (NEEDED)  Shared library: [libz.so.1]\n"
        "  0x0010:   Name: GLIBC_2.17  Flags: none\n  0x0020:   Name: GLIBCXX_3.4.19  Flags: none"
    )
    assert [*make_wheels.needs_beyond(reported, "manylinux_2_17_aarch64")] == ["libz.so.1"]
    found = [*make_wheels.needs_beyond(reported, "manylinux_2_12_x86_64")]
    assert found == ["libz.so.1", "GLIBC_2.17", "GLIBCXX_3.4.19"]


def test_versions_agree_and_the_installed_library_is_the_pinned_one() -> None:
    artifact, _, pins = pinned()
    assert artifact.rpartition(":")[2] == cqstore_rocksdb.ROCKSDB_VERSION
    assert cqstore_rocksdb.__version__.startswith(cqstore_rocksdb.ROCKSDB_VERSION)
    pin = make_wheels.platform_pin(pins)
    assert pin is not None
    assert library_wheel.digest(cqstore_rocksdb.library_path()) == pin.sha256


@pytest.mark.long
def test_every_wheel_is_made_of_the_real_jar_and_twice_the_same(tmp_path: Path) -> None:
    program = ROOT / "tools" / "rocksdb-library" / "make_wheels.py"
    for name in ("one", "two"):
        command = [sys.executable, str(program), "--out", str(tmp_path / name)]
        subprocess.run(command, check=True, capture_output=True)
    one, two = (sorted((tmp_path / name).iterdir()) for name in ("one", "two"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
    assert len(one) == len(pinned()[2])


@pytest.mark.long
def test_a_front_end_makes_a_wheel_of_a_named_jar_and_is_refused_without(tmp_path: Path) -> None:
    jar = make_wheels.jar_at_hand(tmp_path)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(tmp_path / "wheel")]
    source = str(ROOT / "tools" / "rocksdb-library")
    named = ["-C", f"jar={jar}", "-C", f"member={PIN.member}"]
    subprocess.run([*command, *named, source], check=True, capture_output=True)
    (made,) = (tmp_path / "wheel").iterdir()
    assert made.read_bytes() == make_wheel(jar, pinned()[2][0], tmp_path / "dist").read_bytes()
    done = subprocess.run([*command, source], check=False, capture_output=True, text=True)
    assert done.returncode
    assert "name the jar and one of its libraries" in done.stdout + done.stderr
