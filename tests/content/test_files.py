"""The files target: the old bytes or the new, inside its root, and nothing left behind."""

import errno
import hashlib
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from pipeline import Found
from pipeline.content import FilesTarget, file_key, files
from pipeline.errors import LeaseLost, TargetError

KEY = "japan/kyoto/index.html"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def target(tmp_path):
    return FilesTarget(tmp_path / "public" / "acme")


def everything(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def test_what_was_written_is_seen(target):
    tag = target.write(KEY, b"one")

    assert (target.root / KEY).read_bytes() == b"one"
    assert target.look(KEY) == Found(hashlib.sha256(b"one").hexdigest(), tag)
    assert target.tag(KEY) == tag
    assert target.write(KEY, b"three") != tag
    assert everything(target.root) == [KEY]


def test_nothing_is_there_at_first(target):
    assert target.look(KEY) is None
    assert target.tag(KEY) is None


def test_the_tag_tells_a_change_from_outside(target):
    tag = target.write(KEY, b"one")
    (target.root / KEY).write_bytes(b"two")

    assert target.tag(KEY) != tag


@pytest.mark.parametrize("mask", [0o077, 0o022, 0o000])
def test_files_and_folders_can_be_read_by_a_web_server(target, mask):
    before = os.umask(mask)
    try:
        target.write(KEY, b"one")
    finally:
        os.umask(before)

    assert stat.S_IMODE((target.root / KEY).stat().st_mode) == 0o644
    assert stat.S_IMODE((target.root / "japan").stat().st_mode) == 0o755


def test_the_temporary_file_is_private_hidden_and_unpredictable(target, monkeypatch):
    """Until it is renamed nobody else can read it, and its name cannot be guessed."""
    seen = []

    def look(file):
        (name,) = [path for path in target.root.iterdir() if path.name.startswith(".")]
        seen.append((name.name, stat.S_IMODE(name.stat().st_mode)))

    monkeypatch.setattr(os, "fchmod", lambda file, mode: look(file) if mode == 0o644 else None)
    target.write(KEY, b"one")
    target.write(KEY, b"two")

    assert [mode for _, mode in seen] == [0o600, 0o600]
    assert len({name for name, _ in seen}) == 2
    assert all(files.TEMPORARY.fullmatch(name) for name, _ in seen)


def test_file_then_folders_are_made_durable(target, monkeypatch):
    """The file is synced before it gets its name, each folder after a name in it was made: that with the
    page's own folder in it last, for by then the disk has that already."""
    steps = []
    sync, rename = os.fsync, os.rename

    def note_sync(file):
        path = Path(os.readlink(f"/proc/self/fd/{file}"))
        steps.append("temporary" if path.name.startswith(".pipeline") else path.name)
        sync(file)

    def note_rename(*names, **folders):
        steps.append("rename")
        rename(*names, **folders)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "rename", note_rename)
    target.root.mkdir(parents=True)
    target.write(KEY, b"one")

    assert steps == ["acme", "temporary", "rename", "kyoto", "japan"]


def vectors() -> list[str]:
    """Keys that must never be a file of ours."""
    parts = [
        "..",
        ".",
        "",
        "...",
        ".git",
        ".htaccess",
        "~",
        "con",
        "nul",
        "aux",
        "prn",
        "com1",
        "lpt9",
        "CON",
        "con.html",
    ]
    parts += [
        "a\0b",
        "a\nb",
        "a\n",
        "a\\b",
        "a:b",
        "c:",
        "a b",
        "a ",
        " a",
        "a.",
        "%2e%2e",
        "%2f",
        "..%2f",
        "..%5c",
        "%00",
    ]
    parts += [
        "‥",
        "．．",
        "／",
        "∕",
        "＼",
        "․․",
        "%c0%ae%c0%ae",
        "%252e%252e",
        "é",
        "Kyoto",
        "ＡＢ",
        "a\u202eb",
        "\ud800",
    ]
    parts += [
        "*",
        "?",
        "|",
        "<",
        ">",
        '"',
        "$HOME",
        "`id`",
        ";",
        "&",
        "a" * 201,
        "a.b.c",
        "a..b",
        "-.-",
        "a/../..",
        "_",
    ]
    shapes = ["{}/index.html", "japan/{}/index.html", "japan/{}", "{}"]
    return [shape.format(part) for part, shape in product(parts, shapes)] + [
        "/etc/passwd",
        "//etc/passwd",
        "a" + "/a" * 600,
    ]


def test_no_unsafe_key_reaches_the_disk(target, tmp_path):
    """Every one is refused by each door, before anything is opened."""
    keys = vectors()
    assert len(keys) >= 200

    for key in keys:
        for door in (target.look, target.tag, lambda key: target.write(key, b"x")):
            with pytest.raises(TargetError):
                door(key)

    assert everything(tmp_path) == []


@settings(max_examples=100, deadline=None)
@given(key=st.text(alphabet="ab-./\\\0~%2e:\n C", max_size=20))
def test_a_key_is_refused_or_stays_below_the_root(tmp_path_factory, key):
    root = tmp_path_factory.getbasetemp() / "fence" / "root"
    try:
        parts = files.split(key)
    except TargetError:
        return
    path = Path(os.path.normpath(root / key))
    assert path.is_relative_to(root)
    assert path != root
    assert path.parts[len(root.parts) :] == tuple(parts)


@pytest.mark.parametrize("path", ["", "japan/", "japan/kyoto/"])
def test_pages_have_files(path):
    assert file_key(path) == f"{path}index.html"


@pytest.mark.parametrize("path", ["japan", "/", "../", "japan//", "Japan/"])
def test_other_paths_have_none(path):
    if path != "japan":
        with pytest.raises(TargetError):
            file_key(path)
    else:
        assert file_key(path) == "japanindex.html"  # a path ends in a slash: see Site.path


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "index.html").write_bytes(b"secret")
    return folder


def test_a_link_in_place_of_a_folder_is_not_followed(target, outside):
    target.write("japan/index.html", b"one")
    (target.root / "japan" / "kyoto").symlink_to(outside)

    assert target.look(KEY) is None
    assert target.tag(KEY) is None
    with pytest.raises(TargetError, match="link stands where a folder is needed"):
        target.write(KEY, b"two")
    assert everything(outside) == ["index.html"]
    assert (outside / "index.html").read_bytes() == b"secret"


def test_a_link_in_place_of_a_file_is_replaced_not_followed(target, outside):
    (target.root / "japan" / "kyoto").mkdir(parents=True)
    (target.root / KEY).symlink_to(outside / "index.html")

    assert target.look(KEY) is None
    target.write(KEY, b"two")

    assert not (target.root / KEY).is_symlink()
    assert (target.root / KEY).read_bytes() == b"two"
    assert (outside / "index.html").read_bytes() == b"secret"


def test_the_root_itself_may_be_a_link(tmp_path, outside):
    (tmp_path / "root").symlink_to(outside)

    FilesTarget(tmp_path / "root").write("a/index.html", b"one")

    assert (outside / "a" / "index.html").read_bytes() == b"one"


def test_a_pipe_in_place_of_a_file_does_not_hold_the_worker(target):
    (target.root / "japan" / "kyoto").mkdir(parents=True)
    os.mkfifo(target.root / KEY)

    assert target.look(KEY) is None
    target.write(KEY, b"one")

    assert (target.root / KEY).read_bytes() == b"one"


@pytest.mark.parametrize("planted", ["japan", "japan/kyoto"])
def test_a_file_where_a_folder_is_needed_is_said(target, planted):
    (target.root / planted).parent.mkdir(parents=True)
    (target.root / planted).write_bytes(b"mine")

    with pytest.raises(TargetError, match=f"{re.escape(str(target.root / KEY))}: .*stands where a folder is needed"):
        target.write(KEY, b"one")
    assert target.look(KEY) is None
    assert (target.root / planted).read_bytes() == b"mine"


def test_a_folder_where_the_file_is_needed_is_said(target):
    (target.root / KEY).mkdir(parents=True)

    with pytest.raises(TargetError, match="a folder stands"):
        target.write(KEY, b"one")
    assert target.look(KEY) is None
    assert everything(target.root) == []


@pytest.mark.parametrize("step", ["fsync", "rename", "fchmod", "open", "mkdir"])
@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "may not write"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_what_the_system_refuses_is_said_and_leaves_nothing(target, monkeypatch, step, number, reason):
    target.write(KEY, b"old")
    real = getattr(os, step)

    def refuse(*args, **more):
        if step == "open" and not str(args[0]).startswith(".pipeline"):
            return real(*args, **more)
        raise OSError(number, os.strerror(number))

    key = "japan/nara/index.html" if step == "mkdir" else KEY
    monkeypatch.setattr(os, step, refuse)
    with pytest.raises(TargetError, match=f"{re.escape(str(target.root / key))}: .*{reason}"):
        target.write(key, b"new")

    monkeypatch.undo()
    assert everything(target.root) == [KEY]
    assert (target.root / KEY).read_bytes() == b"old"


def test_a_write_that_is_broken_off_leaves_the_old_bytes(target, monkeypatch):
    target.write(KEY, b"old")

    def interrupt(file):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        target.write(KEY, b"new")

    assert everything(target.root) == [KEY]
    assert (target.root / KEY).read_bytes() == b"old"


def test_a_disk_that_is_really_full_is_said(tmp_path):
    """On a file system of 64 KiB: the message names the disk, the old page stays, no half file is left."""
    mounted = tmp_path / "small"
    mounted.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mounted)]
    if sys.platform != "linux" or os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        target = FilesTarget(mounted)
        target.write(KEY, b"old")
        with pytest.raises(TargetError, match="the disk is full"):
            target.write(KEY, b"x" * 200_000)
        assert everything(mounted) == [KEY]
        assert (mounted / KEY).read_bytes() == b"old"
        subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
        with pytest.raises(TargetError, match="read-only"):
            target.write(KEY, b"new")
        assert (mounted / KEY).read_bytes() == b"old"
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


WRITER = """
import sys
from pathlib import Path
from pipeline import Found
from pipeline.content import FilesTarget
target = FilesTarget(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    for letter in b"abcdef":
        target.write("page/index.html", bytes([letter]) * 300_000)
"""


def test_a_killed_writer_leaves_whole_pages_only(tmp_path):
    """Whenever the process dies, the page is one of those written; what it leaves hidden is swept."""
    for moment in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
        )  # fmt: skip
        assert writer.stdout
        writer.stdout.readline()
        threading.Event().wait(0.02 + 0.01 * moment)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        page = tmp_path / "page" / "index.html"
        if page.exists():
            data = page.read_bytes()
            assert len(data) == 300_000
            assert len(set(data)) == 1

    FilesTarget(tmp_path).sweep(timedelta(seconds=-1))

    assert everything(tmp_path) in ([], ["page/index.html"])


def test_readers_never_see_a_part(target):
    """While one thread writes, every look is one of the two versions."""
    versions = [b"a" * 100_000, b"b" * 200_000]
    hashes = {hashlib.sha256(data).hexdigest() for data in versions}
    target.write(KEY, versions[0])
    done = threading.Event()

    def write() -> None:
        for _ in range(30):
            for data in versions:
                target.write(KEY, data)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not done.is_set():
        found = target.look(KEY)
        seen.add(found.hash if found else None)
    writer.join()

    assert seen <= hashes


def test_many_threads_make_the_same_folders(target):
    failures = []

    def write(number: int) -> None:
        try:
            target.write(f"a/b/c/d-{number % 4}/index.html", b"x")
        except TargetError as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert len(everything(target.root)) == 4


def test_descriptors_are_given_back(target):
    before = len(os.listdir("/proc/self/fd"))
    target.write(KEY, b"x")
    for _ in range(20):
        target.write(KEY, b"x")
        target.look(KEY)
        target.tag("japan/nara/index.html")
        with pytest.raises(TargetError):
            target.write("../x", b"x")

    assert len(os.listdir("/proc/self/fd")) == before


def test_sweep_takes_old_files_of_our_name_only(target, outside):
    target.write(KEY, b"x")
    old, young = (target.root / f".pipeline-else~where~1~2-{letter * 32}.tmp" for letter in "ab")
    others = [target.root / ".pipeline-x.tmp", target.root / ".keep", outside / old.name]
    for path in (old, young, *others):
        path.write_bytes(b"")
    for path in (old, *others):
        os.utime(path, (time.time() - 7200,) * 2)
    (target.root / "link").symlink_to(outside)

    assert target.sweep(timedelta(hours=1)) == 1

    assert not old.exists()
    assert all(path.exists() for path in (young, *others))


def test_sweep_takes_what_a_process_that_is_gone_left_at_once(target):
    """A process that was killed a moment ago cannot be writing any more."""
    child = subprocess.run(
        [sys.executable, "-c", "from pipeline import holder; print(holder.me())"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    target.write(KEY, b"x")
    left = target.root / f".pipeline-{child.stdout.strip().replace('/', '~')}-{'a' * 32}.tmp"
    left.write_bytes(b"half")

    assert target.sweep(timedelta(hours=1)) == 1

    assert not left.exists()


def test_what_is_no_longer_wanted_is_not_put_in_place(target):
    """A process that was stopped while it wrote looks once more before the rename."""
    target.write(KEY, b"old")

    with pytest.raises(LeaseLost):
        target.write(KEY, b"new", wanted=lambda: False)

    assert (target.root / KEY).read_bytes() == b"old"
    assert everything(target.root) == [KEY]


def test_sweep_of_nothing_is_nothing(target):
    assert target.sweep(timedelta(hours=1)) == 0
