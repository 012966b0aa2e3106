"""Whatever is killed, and whatever it leaves behind, the next start works."""

import contextlib
import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from pipeline.embedded import EmbeddedError, EmbeddedServer
from pipeline.embedded.binaries import find_binaries

from .scene import FAST, Failed, Scene, alive, kill, until

pytestmark = pytest.mark.slow  # real processes, and many of them


def test_a_killed_server_is_recovered_with_every_acknowledged_row(scene: Scene) -> None:
    """Although its starter keeps the dead postmaster as a zombie; with the settings that users have."""
    first = scene.client(settings={})
    first.start()
    first.sql("CREATE TABLE notes (id int)")
    for number in range(20):
        first.sql(f"INSERT INTO notes VALUES ({number})")
    server = scene.server_pid()
    assert server
    kill(server)
    assert Path(f"/proc/{server}").exists(), "a zombie, since its parent did not ask for it"

    second = scene.client()
    second.start()

    assert second.sql("SELECT count(*) FROM notes") == [(20,)]
    first.start()
    assert first.sql("SELECT count(*) FROM notes") == [(20,)]
    assert first.do("pid") == scene.server_pid() != server


@pytest.mark.parametrize(
    "content", ["", "\n", "12", "-", "{stranger}\n", "{stranger}\n/elsewhere\n1\n5432\n/nowhere\n\n1 2\nready\n"]
)
def test_a_useless_pid_file_does_not_matter(own_scene: Scene, content: str) -> None:
    """Empty, cut short, or naming a process that lives and is not ours."""
    scene = own_scene
    first = scene.client()
    first.start()
    server = scene.server_pid()
    assert server
    kill(server)
    first.kill()
    (scene.data / "postmaster.pid").write_text(content.format(stranger=os.getppid()))

    second = scene.client()
    second.start()

    assert second.sql("SELECT 1") == [(1,)]


def test_a_pid_that_was_given_to_a_stranger_does_not_matter(scene: Scene) -> None:
    """After a crash and a reboot the number may be anybody's; the socket's own lock file says the same."""
    first = scene.client()
    first.start()
    server = scene.server_pid()
    assert server
    kill(server)
    first.kill()
    for name in ("data/postmaster.pid", "s/.s.PGSQL.5432.lock"):
        path = scene.home / name
        path.write_text(path.read_text().replace(str(server), str(os.getpid()), 1))

    second = scene.client()
    second.start()

    assert second.sql("SELECT 1") == [(1,)]


MOMENTS = {
    "begun": "data.tmp-*",
    "version": "data.tmp-*/PG_VERSION",
    "control": "data.tmp-*/global/pg_control",
    "catalogue": "data.tmp-*/base/1/PG_VERSION",
    "databases": "data.tmp-*/base/5",
    "renamed": "data/PG_VERSION",
    "running": "data/postmaster.pid",
}
OFTEN = {"control", "renamed"}


@pytest.mark.parametrize(
    "moment", [pytest.param(name, marks=() if name in OFTEN else (pytest.mark.slow,)) for name in MOMENTS]
)
def test_a_first_start_killed_at_any_moment_is_begun_again(scene: Scene, moment: str) -> None:
    """SIGKILL in the middle of the first start leaves nothing that the next one stumbles over."""
    first = scene.client()
    first.begin("start")
    until(lambda: list(scene.home.glob(MOMENTS[moment])), moment)
    first.kill()

    second = scene.client()
    second.start()

    assert second.sql("SELECT current_user, current_database()") == [("pipeline", "pipeline")]
    second.do("release")
    assert scene.server_pid() is None


def test_leftovers_of_an_interrupted_first_start_are_removed(own_scene: Scene) -> None:
    """They are never taken for a cluster."""
    leftover = own_scene.home / "data.tmp-abc"
    leftover.mkdir(parents=True)
    (leftover / "PG_VERSION").write_text("18\n")

    with EmbeddedServer(own_scene.home, settings=FAST):
        assert list(own_scene.home.glob("data.tmp-*")) == []


def test_children_that_outlive_a_killed_server_are_waited_for(own_scene: Scene) -> None:
    """A second server beside them would destroy the data; when they end, all is well again."""
    scene = own_scene
    first = scene.client()
    first.start()
    server = scene.server_pid()
    assert server
    first.begin("sql", "DO 'BEGIN LOOP END LOOP; END'")  # never looks whether its server lives
    busy = int(until(lambda: _backend(server), "the query runs"))
    kill(server)

    impatient = scene.client(patience=timedelta(seconds=0.3))
    with pytest.raises(Failed, match="still use"):
        impatient.start()
    assert alive(busy)
    patient = scene.client()
    patient.begin("start")
    kill(busy)

    patient.answer()
    assert patient.sql("SELECT 1") == [(1,)]


def _backend(server: int) -> str:
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = entry.joinpath("stat").read_text().rpartition(")")[2].split()[1]
            if parent == str(server) and b"[local] DO" in entry.joinpath("cmdline").read_bytes():
                return entry.name
    return ""


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_waiting_for_the_start_lock_can_be_ended(own_scene: Scene, signal_number: int) -> None:
    """Ctrl-C ends the wait with KeyboardInterrupt; a killed holder lets the next one pass."""
    scene = own_scene
    holder = scene.client()
    holder.begin("start")
    until(lambda: (scene.home / "start.lock").exists() and (scene.home / "start.lock").read_text(), "start is locked")
    os.kill(holder.pid, signal.SIGSTOP)
    waiter = scene.client()
    waiter.begin("start")
    until(lambda: (scene.home / "start.lock").read_text().strip() == str(holder.pid), "the holder is named")

    if signal_number == signal.SIGINT:
        until(lambda: _has_open(waiter.pid, "start.lock"), "it waits")
        os.kill(waiter.pid, signal.SIGINT)
        with pytest.raises(Failed) as interrupted:
            waiter.answer()
        assert interrupted.value.kind == "KeyboardInterrupt"
        os.kill(holder.pid, signal.SIGCONT)
        holder.answer()
    else:
        holder.kill()
        waiter.answer()

    assert scene.server_pid()


def _has_open(pid: int, name: str) -> bool:
    with contextlib.suppress(OSError):
        return any(os.readlink(entry).endswith(name) for entry in Path(f"/proc/{pid}/fd").iterdir())
    return False


def test_patience_ends_with_the_name_of_the_holder(own_scene: Scene) -> None:
    """The message says which process to look at."""
    scene = own_scene
    holder = scene.client()
    holder.begin("start")
    until(lambda: (scene.home / "start.lock").exists() and (scene.home / "start.lock").read_text(), "start is locked")
    os.kill(holder.pid, signal.SIGSTOP)

    with pytest.raises(EmbeddedError, match=f"held by process {holder.pid}"):
        EmbeddedServer(scene.home, patience=timedelta(seconds=0.1)).start()


def test_ctrl_c_during_the_first_start_leaves_no_server(own_scene: Scene) -> None:
    """Nobody would stop it otherwise."""
    scene = own_scene
    client = scene.client()
    client.begin("start")
    until(lambda: (scene.data / "postmaster.pid").exists(), "the server comes up")
    os.kill(client.pid, signal.SIGINT)

    with contextlib.suppress(Failed):
        client.answer()
    client.do("release")  # for the signal that came a moment too late: then it is an ordinary client

    until(lambda: scene.server_pid() is None, "it is stopped")


def upgraded(scene: Scene, release: str) -> dict[str, str]:
    """An environment with programs of another release, as after ``pip install -U``."""
    real, fake = find_binaries(), scene.project("upgraded")
    fake.chmod(0o755)
    for name in ("postgres", "initdb"):
        version = f'[ "$1" = --version ] && echo "{name} (PostgreSQL) {release}" && exit'
        (fake / name).write_text(f'#!/bin/sh\n{version}\nexec {real}/{name} "$@"\n')
        (fake / name).chmod(0o755)
    return {"PIPELINE_PG_BIN": str(fake)}


def release_after(scene: Scene) -> str:
    major = (scene.data / "PG_VERSION").read_text().strip()
    return f"{major}.99"


def test_after_an_upgrade_an_unused_server_is_restarted(own_scene: Scene) -> None:
    """Only when nobody else uses it."""
    scene = own_scene
    first = scene.client()
    first.start()
    server = scene.server_pid()
    environment = upgraded(scene, release_after(scene))

    second = scene.client(environment=environment)
    second.start()
    assert scene.server_pid() == server
    assert first.sql("SELECT 1") == [(1,)]
    second.kill()
    first.kill()
    third = scene.client(environment=environment)
    third.start()

    assert scene.server_pid() not in (server, None)
    assert third.sql("SELECT 1") == [(1,)]


def test_data_of_another_major_version_are_refused(own_scene: Scene) -> None:
    """They are not touched, and the message names both versions and the ways out."""
    with EmbeddedServer(own_scene.home, settings=FAST):
        pass
    version = own_scene.data / "PG_VERSION"
    version.write_text("11\n")

    with pytest.raises(EmbeddedError, match=r"made by PostgreSQL 11.*PIPELINE_PG_BIN"):
        EmbeddedServer(own_scene.home).start()

    assert version.read_text() == "11\n"


def test_a_server_that_does_not_come_up_shows_its_log(own_scene: Scene) -> None:
    """The reason is in the message, and nothing is left running."""
    with pytest.raises(EmbeddedError, match="many_buffers"):
        EmbeddedServer(own_scene.home, settings=FAST | {"shared_buffers": "many_buffers"}).start()

    with EmbeddedServer(own_scene.home, settings=FAST) as server:
        assert server.running()


def test_the_log_is_rotated_at_start(own_scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """One older log is kept."""
    monkeypatch.setattr("pipeline.embedded.cluster.LOG_LIMIT", 10)
    for _ in range(2):
        with EmbeddedServer(own_scene.home, settings=FAST):
            pass

    assert {path.name for path in own_scene.home.glob("postgres.log*")} == {"postgres.log", "postgres.log.1"}
