"""Facts about the machine on which figures are measured."""

import os
import platform
import socket
from importlib.metadata import version
from pathlib import Path

from cqstore.ab.measuring.measures import lines_of
from cqstore.ab.results.result import Machine


def this_machine(folder: Path, versions: dict[str, str]) -> Machine:
    """Return this machine with the disk of ``folder``; ``versions`` are those of the sides."""
    kind, options, device = _mount(folder.resolve())
    return Machine(
        name=socket.gethostname(),
        processor=_first("/proc/cpuinfo", "model name") or platform.processor() or "unknown",
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=f"{platform.system()} {platform.release()}",
        file_system=kind, mount_options=options, disk=device,
        versions={
            "python": platform.python_version(), "cqstore": version("cqstore"), **versions,
        },
    )  # fmt: skip


def _first(path: str, name: str) -> str:
    for line in lines_of(Path(path)):
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _mount(folder: Path) -> tuple[str, str, str]:
    """Return kind, options and device of the file system that holds ``folder``."""
    best, found = -1, ("unknown", "", "unknown")
    for line in lines_of(Path("/proc/self/mounts")):
        device, place, kind, options, *_ = line.split()
        if folder.is_relative_to(place.replace("\\040", " ")) and len(place) >= best:
            best, found = len(place), (kind, options, device)
    return found
