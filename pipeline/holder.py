"""Who holds a reservation, written so that another process of this machine can tell whether it is gone; ground floor.

``host/boot/namespace/pid/started``: a process id alone may be used again, and means nothing in another container. This
is for human eyes and for a rerun that starts at once after a crash; what makes taking a job safe is the token alone.
"""

import os
import socket
from functools import cache
from pathlib import Path

PROC = Path("/proc")


@cache
def machine() -> str:
    """This host, since its last boot, in this process namespace; without ``/proc`` only the host."""
    host = socket.gethostname().replace("/", "-")[:100] or "localhost"
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()[:8]
        namespace = os.readlink(PROC / "self/ns/pid").strip("pid:[]")
    except OSError:
        return f"{host}/-/-"
    return f"{host}/{boot}/{namespace}"


def _started(pid: int) -> str | None:
    """When the process started, in clock ticks since boot; None when there is no such process, or only its corpse."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def me() -> str:
    """This process as a holder."""
    pid = os.getpid()
    return f"{machine()}/{pid}/{_started(pid) or '-'}"


def is_gone(holder: str) -> bool:
    """Whether the holder was a process of this machine and boot that runs no more. Unsure is no."""
    where, _, rest = holder.rpartition("/")
    place, _, pid = where.rpartition("/")
    if place != machine() or place.endswith("/-/-") or not pid.isdigit() or rest == "-":
        return False
    return _started(int(pid)) != rest
