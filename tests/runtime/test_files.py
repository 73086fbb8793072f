"""Files that are whole or absent, and never put where something else is."""

import os
import socket
import stat

import pytest

from activehuber.runtime import files
from activehuber.runtime.files import check_outputs, write_file, write_files
from activehuber.runtime.messages import TableError


def test_files_appear_whole_and_together(tmp_path):
    out = tmp_path / "deep" / "out"
    write_files(out, {"a": b"1", "b": b"2"})
    assert {item.name: item.read_bytes() for item in out.iterdir()} == {"a": b"1", "b": b"2"}
    assert [item.name for item in out.parent.iterdir()] == ["out"]
    (tmp_path / "like").mkdir()
    assert out.stat().st_mode == (tmp_path / "like").stat().st_mode


def test_nothing_is_replaced_without_force(tmp_path):
    (tmp_path / "b").write_bytes(b"old")
    with pytest.raises(TableError, match=r"b exists; use --force"):
        write_files(tmp_path, {"a": b"1", "b": b"2"})
    assert [item.name for item in tmp_path.iterdir()] == ["b"]
    write_files(tmp_path, {"a": b"1", "b": b"2"}, force=True)
    assert (tmp_path / "b").read_bytes() == b"2"
    with pytest.raises(TableError, match="exists"):
        write_file(tmp_path / "a", b"3", force=False)


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def full(path, content):
        path.write_bytes(content[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_write_synced", full)
    with pytest.raises(TableError, match="No space left"):
        write_files(tmp_path / "out", {"a": b"123"})
    with pytest.raises(TableError, match="No space left"):
        write_file(tmp_path / "a", b"123")
    assert list(tmp_path.iterdir()) == []


def test_output_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(TableError, match="is a file"):
        check_outputs(tmp_path / "file", ["a"], force=True)
    with pytest.raises(TableError, match="cannot be written"):
        check_outputs(tmp_path / "file" / "sub", ["a"], force=True)
    with pytest.raises(TableError, match="is a directory"):
        write_file(tmp_path, b"")
    with pytest.raises(TableError, match="cannot be written"):
        write_file(tmp_path / "file" / "sub", b"")


def make_device(path):
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except (AttributeError, PermissionError):
        pytest.skip("devices cannot be made here")


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)  # relative, since such paths must be short


MAKERS = {
    "a pipe": os.mkfifo,
    "a socket": make_socket,
    "a device": make_device,
    "a link": lambda path: path.symlink_to("nothing"),
    "a link ": lambda path: path.symlink_to(path.parent / "plain"),
    "a directory": os.mkdir,
}


@pytest.mark.skipif(os.name == "nt", reason="there are none of these")
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("kind", MAKERS)
def test_only_plain_files_are_replaced(kind, force, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").write_text("mine")
    path = tmp_path / "x"
    MAKERS[kind](path)
    before = path.lstat()
    for write in (
        lambda: write_file(path, b"new", force=force),
        lambda: write_files(tmp_path, {"new": b"1", "x": b"2"}, force=force),
    ):
        with pytest.raises(TableError, match=f"x is {kind.strip()}"):
            write()
    assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["plain", "x"]
    assert (tmp_path / "plain").read_text() == "mine"


def test_a_folder_may_be_a_link_but_not_to_nothing(tmp_path):
    (tmp_path / "there").mkdir()
    for name in ("there", "nowhere"):
        (tmp_path / f"to {name}").symlink_to(tmp_path / name)
    write_files(tmp_path / "to there", {"a": b"1"})
    assert (tmp_path / "there" / "a").read_bytes() == b"1"
    with pytest.raises(TableError, match="is a link; choose another folder"):
        write_files(tmp_path / "to nowhere", {"a": b"1"})


def test_drafts_of_a_folder_that_is_there_are_in_it(tmp_path):
    """It may be a disk of its own, and the folder around it may be closed to us."""
    out = tmp_path / "out"
    out.mkdir()
    seen = []

    def parts():
        seen.extend(item.name for item in tmp_path.iterdir())
        yield b"1"

    write_files(out, {"a": parts()})
    assert seen == ["out"] and [item.name for item in out.iterdir()] == ["a"]


def test_a_name_may_be_as_long_as_the_system_takes(tmp_path):
    path = tmp_path / ("n" * 251 + ".csv")
    write_file(path, b"1")
    assert path.read_bytes() == b"1" and list(tmp_path.iterdir()) == [path]


def test_drafts_are_new_files(tmp_path, monkeypatch):
    """Whoever guesses the name of a draft cannot make us write elsewhere."""
    monkeypatch.setattr("secrets.token_hex", lambda size: "guessed")
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".activehuber-guessed.tmp").symlink_to(tmp_path / "mine")
    with pytest.raises(TableError, match="x cannot be written"):
        write_file(tmp_path / "x", b"new")
    assert (tmp_path / "mine").read_text() == "mine"
