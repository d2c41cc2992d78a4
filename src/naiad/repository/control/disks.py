"""Whether a folder is on a disk of this machine, whose system tells of each change. Blocking: it reads the table of mounts.

Owns which file systems count. One that isn't known doesn't: on network file systems others change files unheard.
"""

from __future__ import annotations

import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")
_LOCAL = frozenset(
    {"bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "ntfs3", "overlay", "ramfs", "rootfs"}
    | {"tmpfs", "vfat", "xfs", "zfs"}
)


def is_local(path: Path) -> bool:
    """Return whether changes below `path`, links resolved, are heard of. Where there is no table of mounts they are."""
    try:
        table = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return True
    return file_system(path.resolve(), table) in _LOCAL


def file_system(path: Path, table: str) -> str:
    """Return the kind of the file system that holds `path`, "" when the `table` (proc(5), mountinfo) doesn't say."""
    kind, depth = "", -1
    for line in table.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = Path(_OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4]))
        # Of several mounts at one place the last is seen.
        if path.is_relative_to(point) and len(point.parts) >= depth:
            kind, depth = after.split(" ")[0], len(point.parts)
    return kind
