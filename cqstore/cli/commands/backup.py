"""``cqstore backup``: a copy of a store, open or closed, with a manifest."""

from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.options import CommitLogFolder, ConfigFile, Dir, about_end, note, read_config
from cqstore.cli.path_marks import OutputPath
from cqstore.cli.progress import progress
from cqstore.store.errors import os_errors
from cqstore.store.sentences import some_of
from cqstore.store.service.layout.store_layout import with_log_folder
from cqstore.store.service.offline.backup import back_up
from cqstore.store.service.offline.backup_manifest import BackupManifest, manifest_path
from cqstore.store.service.offline.store_copy import blocks_below

_NAMED = 3
"""Maximum number of files that a note names; the manifest names all."""


def backup(
    root: Dir,
    target: Annotated[
        Path,
        typer.Argument(metavar="TO", help="Folder to create. It must not exist yet."),
        OutputPath(locked=False, is_store=True),
    ],
    config: ConfigFile = None,
    commit_log: CommitLogFolder = None,
    *,
    link: Annotated[
        bool,
        typer.Option(
            "--link", help="Create hard links to closed log files and tables instead of copies."
        ),
    ] = False,
) -> None:
    """Copy an open or closed store, with sizes and digests of all files. Changes nothing.

    The backup of an open store opens like a store after a crash at that moment: the open recovers
    the queues from the log. TO appears only when the copy is complete on disk.

    To verify a backup, run cqstore check TO --against backup.json. To restore it, copy TO. The exit
    code is 1 if a record in the last log files is damaged; the backup then contains the damaged
    log. Run cqstore check DIR to check all records.

    Examples:
        cqstore backup DIR /backup/store-1
        cqstore backup DIR /backup/store-1 --link
    """
    settings = with_log_folder(read_config(config, root), commit_log)
    with progress("copying", about_end(root, settings)) as tick:
        manifest = back_up(root, target, settings, link=link, progress=tick)
    with os_errors("read the size of the backup", target):
        size = blocks_below(target)  # files may be sparse
    note(
        f"{target}: {len(manifest.files)} files, {size} bytes on disk, log"
        f" {manifest.min_phy_offset} to {manifest.max_phy_offset}{_state(manifest)};"
        f" manifest {manifest_path(target)}"
    )
    if manifest.left_out:
        count, names = len(manifest.left_out), manifest.left_out[:_NAMED]
        note(f"{count} files are not commit log files and are left out: {some_of(names, count)}")
    if manifest.damaged_at is not None:
        note(f"the log is damaged at phy offset {manifest.damaged_at} (cqstore check)")
        raise typer.Exit(1)


def _state(manifest: BackupManifest) -> str:
    return ", of an open store: it opens like a store after a crash" if manifest.was_open else ""
