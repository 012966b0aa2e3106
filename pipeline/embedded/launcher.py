"""Run a program as an ordinary user of a user namespace of its own: ``python -I launcher.py UID GID PROGRAM ...``.

PostgreSQL refuses uid 0, and uids without a name. Inside the namespace the caller bears the uid that it is told to;
for the rest of the system nothing changes, so files stay the caller's. This is no drop of privileges, only of the
capabilities. A script, so it imports nothing of ours: it must run isolated from everything else.
"""

import ctypes
import os
import sys
from pathlib import Path

CLONE_NEWUSER = 0x10000000


def enter(uid: int, gid: int) -> None:
    """Move this process into a new user namespace, where it is ``uid`` and ``gid``."""
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"user namespaces are not available: {os.strerror(error)}")
    Path("/proc/self/setgroups").write_text("deny")  # the kernel's condition for mapping a group
    Path("/proc/self/uid_map").write_text(f"{uid} {outer_uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {outer_gid} 1")


def main(arguments: list[str]) -> None:
    """Become the program; returns only by an exception."""
    uid, gid, *program = arguments
    enter(int(uid), int(gid))
    os.execv(program[0], program)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        sys.exit(str(error))
