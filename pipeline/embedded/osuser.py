"""Which operating system user runs the server; engine room.

PostgreSQL refuses uid 0 and uids without a name. An ordinary user runs it as is. For root it is the owner of
existing data, else the account in PIPELINE_PG_OS_USER, else ``postgres`` or ``nobody`` when that account reaches the
programs and the directory, else root itself inside a user namespace. No account is made and no permission outside of
ours is changed.
"""

import os
import pwd
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pipeline.embedded.binaries import Version
from pipeline.embedded.errors import OWN_SERVER, EmbeddedError
from pipeline.embedded.places import read_small

LAUNCHER = Path(__file__).with_name("launcher.py")


@dataclass(frozen=True, slots=True)
class OsUser:
    """The user that the server's programs run as, and how to become that user."""

    name: str
    uid: int
    gid: int
    peers: frozenset[str]  # the names under which the server sees those who may connect
    switch: bool = False  # root becomes that user
    prefix: tuple[str, ...] = ()  # a command that enters the user namespace

    def popen(
        self,
        command: Sequence[str | Path],
        output: int | IO[bytes],
        environment: Mapping[str, str] | None = None,
        pass_fds: tuple[int, ...] = (),
    ) -> subprocess.Popen[bytes]:
        """Start a program as this user, out of reach of the terminal, stdout and stderr to ``output``."""
        return subprocess.Popen(
            [*self.prefix, *map(str, command)],
            user=self.uid if self.switch else None,
            group=self.gid if self.switch else None,
            extra_groups=[] if self.switch else None,
            env=clean_environment() | dict(environment or {}),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=pass_fds,
        )

    def run(self, command: Sequence[str | Path]) -> tuple[int, str]:
        """Exit status and output of a program that ends by itself."""
        with self.popen(command, subprocess.PIPE) as process:
            try:
                output, _ = process.communicate()
            except BaseException:
                process.kill()  # it has a session of its own, so Ctrl-C did not reach it
                raise
        return process.returncode, output.decode("utf-8", "replace").strip()

    def version(self, home: Path, binaries: Path) -> Version | None:
        """The version of the programs; None when this user cannot run them or cannot enter the home directory."""
        script = 'cd -- "$1" && exec "$2" --version'
        try:
            status, output = self.run(["/bin/sh", "-c", script, "sh", home, binaries / "postgres"])
        except (OSError, subprocess.SubprocessError):  # root without the right to become somebody else
            return None
        return Version.of(output) if status == 0 else None


def choose_user(home: Path, binaries: Path) -> tuple[OsUser, Version]:
    """The user to run the server as, and the version that this user finds.

    Raises EmbeddedError when there is none; the message names the remedies.
    """
    tried = []
    for user in _for_root(home) if os.geteuid() == 0 else _for_ordinary(home):
        if version := user.version(home, binaries):
            return user, version
        tried.append(f"{user.name} (in a user namespace)" if user.prefix else user.name)
    raise EmbeddedError(
        f"PostgreSQL runs neither as root nor as a user without a name, and {' nor '.join(tried) or 'nobody else'} "
        f"can use both {binaries} and {home}; move the project or the virtual environment out of private directories, "
        f"or name a user that can use both in PIPELINE_PG_OS_USER, or run as an ordinary user, or {OWN_SERVER}"
        if os.geteuid() == 0 or not _name_of(os.geteuid())
        else f"{binaries / 'postgres'} does not run here; set PIPELINE_PG_BIN to other programs, or {OWN_SERVER}"
    )


def clean_environment() -> dict[str, str]:
    """Ours, without what would change how the server behaves."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PG", "LC_", "LD_"))}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def _for_ordinary(home: Path) -> list[OsUser]:
    uid, gid = os.geteuid(), os.getegid()
    if name := _name_of(uid):
        return [OsUser(name, uid, gid, _peers(home, name))]
    return _in_namespace()


def _for_root(home: Path) -> list[OsUser]:
    named = os.environ.get("PIPELINE_PG_OS_USER")
    account = _account(named) if named else None
    if (home / "data").exists():
        # PostgreSQL insists on owning its data, so what was decided at the first start stays.
        owner = (home / "data").stat().st_uid
        if account and account.pw_uid != owner:
            raise EmbeddedError(
                f"{home / 'data'} belongs to {_name_of(owner) or owner}, not to {named} of PIPELINE_PG_OS_USER; "
                "unset the variable, or give the directory to that user"
            )
        if owner == 0:
            return _in_namespace()
        if not _name_of(owner):
            raise EmbeddedError(
                f"{home / 'data'} belongs to uid {owner}, which has no account here; give it to one that exists"
            )
        return [_become(pwd.getpwuid(owner), home)]
    if account:
        return [_become(account, home)]
    likely = next((name for name in ("postgres", "nobody") if _exists(name)), None)
    return [*([_become(pwd.getpwnam(likely), home)] if likely else []), *_in_namespace()]


def _account(name: str) -> pwd.struct_passwd:
    if not _exists(name) or pwd.getpwnam(name).pw_uid == 0:
        raise EmbeddedError(f"PIPELINE_PG_OS_USER={name} is no account that PostgreSQL accepts; name an ordinary user")
    return pwd.getpwnam(name)


def _become(account: pwd.struct_passwd, home: Path) -> OsUser:
    return OsUser(account.pw_name, account.pw_uid, account.pw_gid, _peers(home), switch=True)


def _in_namespace() -> list[OsUser]:
    if sys.platform != "linux" or not sys.executable:
        return []
    # Strangers look like the overflow uid from inside, so we must be somebody else.
    strangers = int(read_small(Path("/proc/sys/kernel/overflowuid")) or 65534)
    inside = min((entry for entry in pwd.getpwall() if entry.pw_uid not in (0, strangers)), key=lambda e: e.pw_uid)
    prefix = (sys.executable, "-I", str(LAUNCHER), str(inside.pw_uid), str(inside.pw_gid))
    seen_as = pwd.getpwuid(inside.pw_uid).pw_name
    return [OsUser(_name_of(os.geteuid()), os.geteuid(), os.getegid(), frozenset({seen_as}), prefix=prefix)]


def _peers(home: Path, *names: str) -> frozenset[str]:
    """Root, the home's owner and ``names``. Not the account that root lends to the server: others may share it."""
    return frozenset(filter(None, (_name_of(0), _name_of(home.stat().st_uid), *names)))


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
