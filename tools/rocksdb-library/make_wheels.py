"""Makes the wheels of cqstore-rocksdb, all of them or this machine's, which it then installs.

The jar is pyspark's where that has the pinned bytes, else Maven's.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from library_wheel import MODULE, Pin, UnfitError, digest, make_wheel, pinned

_MAVEN_SECONDS = 300
_SYMBOLS = re.compile(r"\b(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)\b")
_NEEDED = re.compile(r"NEEDED.*\[(.+)\]")
_POLICIES = {
    "manylinux_2_12": {"GLIBC": "2.12", "GLIBCXX": "3.4.13", "CXXABI": "1.3.3", "GCC": "4.5.0"},
    "manylinux_2_17": {"GLIBC": "2.17", "GLIBCXX": "3.4.19", "CXXABI": "1.3.7", "GCC": "4.8.0"},
}
"""The newest symbol versions that a tag allows, by the policies of auditwheel."""
_ALLOWED = re.compile(
    r"lib(c|m|dl|rt|pthread)\.so\.\d|libstdc\+\+\.so\.6|libgcc_s\.so\.1|ld-linux-.*|libc\.musl-.*"
)


class JarMissingError(Exception):
    """The jar was not found; the sentence says where it was looked for."""


def jar_at_hand(folder: Path) -> Path:
    """Return the pinned jar: pyspark's where it is the same one, else from Maven into ``folder``.

    Raises:
        JarMissingError: neither has it.
        UnfitError: Maven gives another file than the pinned one.
    """
    artifact, sha256, _ = pinned()
    name = "-".join(artifact.split(":")[1:]) + ".jar"
    spark = find_spec("pyspark")
    if spark is not None and spark.origin is not None:
        jar = Path(spark.origin).parent / "jars" / name
        if jar.is_file() and digest(jar) == sha256:
            return jar
    maven = shutil.which("mvn")
    if maven is None:
        raise JarMissingError(f"{artifact} is not in pyspark's jars, and Maven is not installed")
    command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}"]
    try:
        done = subprocess.run(
            [*command, f"-DoutputDirectory={folder}"],
            capture_output=True, text=True, check=False, timeout=_MAVEN_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired as exc:
        raise JarMissingError(f"Maven gave no answer for {artifact} in {exc.timeout} s") from exc
    if done.returncode:
        output = (done.stdout + done.stderr).strip().splitlines() or ["nothing"]
        raise JarMissingError(f"Maven does not give {artifact}; it says: {output[0]}")
    return folder / name


def platform_pin(pins: Sequence[Pin]) -> Pin | None:
    """Return the library that fits this machine; ``None``: there is none, and none is required."""
    from packaging.tags import platform_tags  # noqa: PLC0415 - for an installation alone

    tags = set(platform_tags())
    return next((pin for pin in pins if pin.tag in tags), None)


def needs_beyond(output: str, tag: str) -> Iterator[str]:
    """Yield what a library needs beyond what its tag promises, of what ``readelf -d -V`` shows."""
    yield from (name for name in _NEEDED.findall(output) if not _ALLOWED.fullmatch(name))
    limit: Mapping[str, str] | None = _POLICIES.get("_".join(tag.split("_")[:3]))
    for family, version in sorted(set(_SYMBOLS.findall(output))):
        if limit is not None and _numbers(version) > _numbers(limit[family]):
            yield f"{family}_{version}"


def check_tag(wheel: Path, pin: Pin) -> None:
    """Refuse a wheel whose library needs more than its tag promises.

    Raises:
        UnfitError: it does; the sentence lists it.
    """
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        (name,) = (name for name in archive.namelist() if ".so." in name)
        command = [
            "readelf",
            "--wide",
            "--dynamic",
            "--version-info",
            archive.extract(name, folder),
        ]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    beyond = ", ".join(needs_beyond(output, pin.tag))
    if beyond or not _NEEDED.search(output):
        raise UnfitError(f"{pin.member} is not of {pin.tag}: it needs {beyond or 'nothing at all'}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def install(wheel: Path) -> None:
    """Install a wheel into the environment of this interpreter."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, "--force-reinstall", str(wheel)], check=True)


def main(words: Sequence[str] | None = None) -> int:
    """Make the wheels as ``words`` or the command line say; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist"), help="folder for the wheels")
    parser.add_argument(
        "--install", action="store_true", help="make this machine's alone, and install it"
    )
    options = parser.parse_args(words)
    pins = pinned()[2]
    fitting = platform_pin(pins) if options.install else None
    if options.install and fitting is None:
        print(f"{MODULE}: no library fits this machine", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            jar = jar_at_hand(Path(folder))
            if fitting is not None:
                install(make_wheel(jar, fitting, Path(folder)))
                return 0
            for pin in pins:
                wheel = make_wheel(jar, pin, options.out)
                check_tag(wheel, pin)
                print(wheel)
        except (JarMissingError, UnfitError) as exc:
            print(f"{MODULE}: {exc}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
