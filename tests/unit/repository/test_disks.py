"""Which folders are on disks of this machine, by the system's table of mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.repository.control.disks import file_system, is_local

TABLE = r"""22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /mnt/models rw,relatime shared:9 - nfs4 server:/models rw
31 22 0:27 / /mnt/a\040b rw - fuse.sshfs host:/x rw
32 30 0:28 / /mnt/models/fast rw - tmpfs tmpfs rw
33 22 0:29 / /mnt/twice rw - xfs /dev/vdb rw
34 33 0:30 / /mnt/twice rw - cifs //server/share rw
a line of another kind
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/models", "ext4"),
        ("/mnt/models/m", "nfs4"),
        ("/mnt/models", "nfs4"),
        ("/mnt/modelsx", "ext4"),
        ("/mnt/a b/m", "fuse.sshfs"),
        ("/mnt/models/fast/m", "tmpfs"),
        ("/mnt/twice/m", "cifs"),
    ],
)
def test_the_deepest_and_of_those_the_last_mount_counts(path, kind):
    assert file_system(Path(path), TABLE) == kind


def test_without_a_mount_nothing_is_known():
    assert file_system(Path("/x"), "") == ""


def test_the_systems_own_files_are_on_no_disk():
    assert not is_local(Path("/proc/self"))
    assert is_local(Path("/dev/shm"))
