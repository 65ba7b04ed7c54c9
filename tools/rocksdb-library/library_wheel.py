"""Makes the wheels of cqstore-rocksdb from RocksDB's jar: a library, a module, licences.

A build backend of its own (PEP 517), since a wheel is made of files in this folder and of one that
must not be: the library comes out of the jar, and only with the digest that ``pins.toml`` has. The
same jar gives the same bytes.
"""

import base64
import hashlib
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULE = "cqstore_rocksdb"
_WHEN = (1980, 1, 1, 0, 0, 0)
_JAR = "jar"
_MEMBER = "member"


class UnfitError(Exception):
    """What the wheel would be made of is not what is pinned; the sentence says file and digests."""


@dataclass(frozen=True, slots=True)
class Pin:
    """One library of the jar."""

    member: str
    tag: str
    sha256: str


def pinned() -> tuple[str, str, list[Pin]]:
    """Return the jar's Maven coordinates, its SHA-256, and what of it goes into wheels."""
    found = tomllib.loads((HERE / "pins.toml").read_text(encoding="utf-8"))
    pins = [Pin(**each) for each in found["library"]]
    return found["jar"]["artifact"], found["jar"]["sha256"], pins


def digest(path: Path) -> str:
    """Return a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_wheel(jar: Path, pin: Pin, folder: Path) -> Path:
    """Write the wheel of one library into ``folder``; return its path.

    Raises:
        UnfitError: jar or library have another digest than the pinned one.
    """
    _check(jar, pinned()[1], digest(jar))
    with zipfile.ZipFile(jar) as archive:
        library = archive.read(pin.member)
    _check(f"{jar}!{pin.member}", pin.sha256, hashlib.sha256(library).hexdigest())
    project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name = f"{MODULE}-{project['version']}"
    files = dict(_files(project, f"{name}.dist-info", pin, library))
    record = f"{name}.dist-info/RECORD"
    lines = [f"{path},sha256={_urlsafe(data)},{len(data)}" for path, data in files.items()]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    target = folder / f"{name}-py3-none-{pin.tag}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, _WHEN)
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
            entry.external_attr = (0o100755 if ".so." in path else 0o100644) << 16
            wheel.writestr(entry, data)
    return target


def _check(what: object, expected: str, found: str) -> None:
    if found != expected:
        raise UnfitError(f"{what}: its SHA-256 should be {expected}, and is {found}")


def _files(
    project: Mapping[str, str], info: str, pin: Pin, library: bytes
) -> Iterator[tuple[str, bytes]]:
    for path in sorted((HERE / "src" / MODULE).iterdir()):
        if path.name in {"__init__.py", "py.typed"}:
            yield f"{MODULE}/{path.name}", path.read_bytes()
    artifact = pinned()[0]
    yield f"{MODULE}/librocksdb.so.{artifact.rpartition(':')[2]}", library
    licences = sorted((HERE / "licenses").iterdir())
    for path in licences:
        yield f"{info}/licenses/{path.name}", path.read_bytes()
    yield f"{info}/METADATA", _metadata(project, [path.name for path in licences]).encode()
    lines = ["Wheel-Version: 1.0", f"Generator: {MODULE}", "Root-Is-Purelib: false"]
    yield f"{info}/WHEEL", "\n".join([*lines, f"Tag: py3-none-{pin.tag}", ""]).encode()


def _metadata(project: Mapping[str, str], licences: list[str]) -> str:
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        *(f"License-File: {name}" for name in licences),
        *(f"Classifier: {each}" for each in project["classifiers"]),
        f"Requires-Python: {project['requires-python']}",
        "Description-Content-Type: text/markdown",
        "",
        (HERE / project["readme"]).read_text(encoding="utf-8"),
    ]
    return "\n".join(lines)


def _urlsafe(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


# ---- what a front end calls: python -m build --wheel -C jar=FILE -C member=NAME rocksdb-library


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, str] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Make one wheel of the jar that the settings name; return the name of its file."""
    del metadata_directory
    settings = config_settings or {}
    pins = {pin.member: pin for pin in pinned()[2]}
    if _JAR not in settings or settings.get(_MEMBER) not in pins:
        sys.exit(
            f"cqstore-rocksdb is made of {pinned()[0]}: name the jar and one of its libraries,"
            f" -C {_JAR}=FILE -C {_MEMBER}=NAME with NAME one of {', '.join(pins)};"
            " make rocksdb-wheels does that"
        )
    return make_wheel(Path(settings[_JAR]), pins[settings[_MEMBER]], Path(wheel_directory)).name


def build_sdist(sdist_directory: str, config_settings: Mapping[str, str] | None = None) -> str:
    """Refuse: building from a source archive would need the jar."""
    del sdist_directory, config_settings
    sys.exit("cqstore-rocksdb has wheels alone: what it is made of is a jar, see pins.toml")
