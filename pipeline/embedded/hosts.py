"""Note which machine uses the directory; engine room.

File locks and process ids do not cross machines, and two servers on one data directory destroy it. So whoever starts
the server leaves a note, and a clean stop removes it. Within one running kernel, containers included, the locks
decide instead.
"""

import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.embedded.errors import OWN_SERVER, EmbeddedError
from pipeline.embedded.places import read_small, write_whole


@dataclass(frozen=True, slots=True)
class Host:
    """A machine (name, machine id), one run of it (boot id), and the part whose processes we see (pid namespace)."""

    name: str
    machine: str
    boot: str
    processes: str

    @classmethod
    def here(cls) -> "Host":
        """This process's; empty where the system does not tell."""
        try:
            processes = os.readlink("/proc/self/ns/pid")
        except OSError:
            processes = ""
        return cls(
            name=socket.gethostname(),
            machine=read_small(Path("/etc/machine-id")).strip(),
            boot=read_small(Path("/proc/sys/kernel/random/boot_id")).strip(),
            processes=processes,
        )

    @classmethod
    def noted(cls, path: Path) -> "Host | None":
        """The one in the note; None without a note, or with one that says nothing."""
        try:
            return cls(**{key: str(value) for key, value in json.loads(read_small(path)).items()})
        except (ValueError, TypeError, AttributeError):
            return None

    def note(self, path: Path) -> None:
        write_whole(path, json.dumps(asdict(self)), 0o600)

    def same_kernel(self, other: "Host") -> bool:
        return bool(self.boot) and self.boot == other.boot

    def same_machine(self, other: "Host") -> bool:
        """Also true after a reboot, or after a new name."""
        if self.same_kernel(other):
            return True
        if self.machine and other.machine:
            return self.machine == other.machine
        return self.name == other.name

    def refuse_another(self, path: Path) -> None:
        """Raise EmbeddedError when the note is another machine's."""
        if (noted := Host.noted(path)) and not self.same_machine(noted):
            raise EmbeddedError(
                f"{path.parent} is in use by the host {noted.name!r}, and this is {self.name!r}; "
                f"stop it there (pipeline db stop), or remove {path} if that host no longer runs it, or {OWN_SERVER}"
            )

    def sees_processes_of(self, path: Path) -> bool:
        """False when the note comes from another container of this kernel."""
        noted = Host.noted(path)
        return noted is None or not self.same_kernel(noted) or noted.processes == self.processes
