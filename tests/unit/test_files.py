# SPDX-License-Identifier: Apache-2.0
"""No link of another user is followed and no file of theirs taken for ours; what is written is whole or not there."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from unittest import mock

import pytest

from lagom import files
from lagom.controller.options import Options
from lagom.controller.pinned_rules import PinnedRules
from lagom.errors import UsageError
from lagom.files import check_named, not_ours, open_append, open_regular, own_file, read_own, write_named, write_whole
from lagom.journal import Journal, Note

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def test_a_log_is_made_and_appended_to(tmp_path: Path) -> None:
    for text in (b"one", b"two"):
        descriptor = open_append(tmp_path / "log")
        os.write(descriptor, text)
        os.close(descriptor)
    assert (tmp_path / "log").read_bytes() == b"onetwo"


@pytest.mark.parametrize("reader", [open_append, read_own])
def test_a_link_is_not_followed(reader: object, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("as it was")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        reader(tmp_path / "link")  # type: ignore[operator]
    assert target.read_text() == "as it was"


@pytest.mark.parametrize("reader", [open_append, read_own])
def test_a_fifo_neither_serves_nor_hangs(reader: object, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="no regular file"):
        reader(tmp_path / "fifo")  # type: ignore[operator]


@needs_root
@pytest.mark.parametrize("reader", [open_append, read_own])
def test_another_users_file_is_refused(reader: object, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    os.chown(path, NOBODY, NOBODY)
    with pytest.raises(OSError, match="no regular file of this user"):
        reader(path)  # type: ignore[operator]


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"#" * (files.LARGEST_READ + 1))
    with pytest.raises(OSError, match="larger than a MiB"):
        read_own(tmp_path / "file")


def test_a_folder_open_to_all_is_no_place_for_a_log(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert "every user" in not_ours(tmp_path)
    tmp_path.chmod(0o755)
    assert not_ours(tmp_path) == ""


@needs_root
def test_another_users_folder_or_link_to_a_folder_is_no_place_for_a_log(tmp_path: Path) -> None:
    link, folder = tmp_path / "link", tmp_path / "folder"
    folder.mkdir()
    link.symlink_to(folder)
    assert not_ours(link) == ""
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    assert "another user" in not_ours(link)
    os.chown(folder, NOBODY, NOBODY)
    assert "another user" in not_ours(folder)


def test_a_whole_file_takes_the_place_of_a_link_and_leaves_its_target(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "file"
    target.write_text("as it was")
    path.symlink_to(target)
    write_whole(path, "new")
    assert (path.read_text(), target.read_text()) == ("new", "as it was")
    assert stat.S_ISREG(path.lstat().st_mode)


def test_a_result_goes_where_the_users_own_link_leads_and_is_as_open_as_it_was(tmp_path: Path) -> None:
    folder, path = tmp_path / "www", tmp_path / ("n" * 245)
    folder.mkdir()
    target = folder / "report.html"
    target.write_text("as it was")
    target.chmod(0o600)
    path.symlink_to(target)
    write_named(path, b"new")
    assert path.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert list(folder.iterdir()) == [target]


def test_whether_a_named_file_can_be_written_is_asked_where_its_link_leads(tmp_path: Path) -> None:
    path = tmp_path / "link"
    (tmp_path / "folder").mkdir()
    path.symlink_to("folder")
    with pytest.raises(UsageError, match="it is a folder"):
        check_named(path)
    path.unlink()
    (tmp_path / "folder" / "file").write_text("as it was")
    path.symlink_to("folder/file")
    asked = []
    with mock.patch("os.access", side_effect=lambda place, mode: asked.append(place) or True):
        check_named(path)
    assert asked == [tmp_path / "folder"]


def test_what_takes_text_as_it_comes_is_written_to_and_stays(tmp_path: Path) -> None:
    fifo, link = tmp_path / "fifo", tmp_path / "link"
    os.mkfifo(fifo)
    link.symlink_to(fifo)
    for path in (fifo, link):
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        write_whole(path, "told")
        assert os.read(reader, 10) == b"told"
        os.close(reader)
    assert stat.S_ISFIFO(fifo.lstat().st_mode)
    assert link.is_symlink()


def test_what_is_open_is_written_to_and_its_name_stays(tmp_path: Path) -> None:
    """``/dev/stdout`` of a command whose output goes to a file; root could replace it."""
    with (tmp_path / "output").open("w+") as output:
        print("before", file=output, flush=True)
        name, stdout = tmp_path / "fd", tmp_path / "stdout"
        name.symlink_to(f"/proc/self/fd/{output.fileno()}")
        stdout.symlink_to(name)
        for path in (name, stdout):
            write_whole(path, "told\n")
            assert path.is_symlink()
    assert (tmp_path / "output").read_text() == "before\ntold\ntold\n"


def test_nobody_is_waited_for_and_no_device_is_replaced(tmp_path: Path) -> None:
    fifo, device = tmp_path / "fifo", tmp_path / "null"
    os.mkfifo(fifo)
    with pytest.raises(OSError, match=str(fifo)):
        write_whole(fifo, "to nobody")
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.open("wb").close()
    except OSError:
        pytest.skip("only root makes devices, and not everywhere")
    write_whole(device, "told")
    assert stat.S_ISCHR(device.lstat().st_mode)


@pytest.mark.parametrize("name", [".", "", "/"])
def test_a_folder_is_no_file(name: str) -> None:
    with pytest.raises(OSError, match="it is a folder"):
        write_whole(Path(name), "text")


def test_nothing_is_left_where_writing_fails(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "file", "\ud800")
    assert list(tmp_path.iterdir()) == []


def test_the_journal_follows_no_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "target"
    target.write_text("as it was")
    (tmp_path / "decisions.jsonl").symlink_to(target)
    with Journal(tmp_path) as journal:
        journal.write(Note(text="lost"))
    assert target.read_text() == "as it was"
    assert "cannot be written" in capsys.readouterr().err


@needs_root
def test_pins_of_another_user_are_not_followed_and_said(tmp_path: Path) -> None:
    pins = PinnedRules(Options(directory=tmp_path, job="job"))
    path = tmp_path / "pins"
    path.write_text("allgather:any:nc=1")
    os.chown(path, NOBODY, NOBODY)
    assert pins.changed() == ()
    assert "not followed" in pins.problems[0]
    path.unlink()
    path.write_text("allgather:any:nc=2")
    assert [rule.config.channels for rule in pins.changed() or ()] == [2]


def test_a_file_that_was_named_may_be_anybodys_but_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    with open_regular(tmp_path / "link") as file:
        assert file.read() == b"text"
    os.mkfifo(tmp_path / "fifo")
    for other in (tmp_path / "fifo", tmp_path, Path("/dev/zero")):
        with pytest.raises(OSError, match="no regular file"):
            open_regular(other)


def test_only_a_regular_file_in_a_folder_closed_to_others_is_ours(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_bytes(b"text")
    os.mkfifo(folder / "fifo")
    (folder / "gone").symlink_to("/nonexistent")
    (tmp_path / "loop").symlink_to("loop")
    status = own_file(folder / "file")
    assert status is not None
    assert status.st_size == 4
    assert [own_file(folder / name) for name in ("fifo", "gone", "nowhere")] == [None] * 3
    assert own_file(tmp_path / "loop" / "file") is None
    folder.chmod(0o777)
    assert own_file(folder / "file") is None


@needs_root
@pytest.mark.parametrize("theirs", ["file", "folder", "link"])
def test_what_another_user_owns_is_not_ours(theirs: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("folder")
    assert own_file(tmp_path / "link" / "file") is not None
    path = {"file": "folder/file", "folder": "folder", "link": "link"}[theirs]
    os.chown(tmp_path / path, NOBODY, NOBODY, follow_symlinks=False)
    assert own_file(tmp_path / "link" / "file") is None
