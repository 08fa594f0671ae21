"""`untether db` and `untether doctor` beside a bridge at work, and a database of a newer version."""

from __future__ import annotations

import re
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.loopback.test_bridge_process import ANY_PORT, bridge_in, run_cli, telegram_world
from untether.store.migrate import integrity_check

pytestmark = pytest.mark.anyio


def values(file: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()


async def test_a_backup_while_the_bridge_writes_is_whole_private_and_starts(tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    async with telegram_world(tmp_path / "state") as (_, ann, bridge):
        await ann.text("first")
        await ann.wait("first", timeout=15)
        async with anyio.create_task_group() as tasks:

            async def talk() -> None:
                for number in range(8):
                    await ann.text(f"message {number}")
                    await ann.wait(f"message {number}", timeout=30)

            tasks.start_soon(talk)
            for number in range(3):
                done = await to_thread.run_sync(run_cli, tmp_path / "state", "db", "backup", str(copies / f"{number}"))
                assert done.returncode == 0, done.stderr
                assert re.search(r"✓ .*/copies/\d  \([\d,]+ bytes, \d+ runs\)", done.stdout)
        assert await bridge.stop() == 0
        for copy in sorted(copies.iterdir()):
            assert stat.S_IMODE(copy.stat().st_mode) == 0o600
            assert integrity_check(copy) == []
            (answered,) = values(copy, "SELECT COUNT(*) FROM messages WHERE text = 'first' AND state = 'answered'")
            assert answered == (1,)
        assert {path.name for path in copies.iterdir()} == {"0", "1", "2"}  # nothing beside the copies

        for end in ("", "-wal", "-shm"):
            (tmp_path / "state" / f"untether.db{end}").unlink(missing_ok=True)
        shutil.copy(copies / "2", tmp_path / "state" / "untether.db")
        await bridge.start()
        await ann.text("after the copy was put back")
        await ann.wait("after the copy was put back", timeout=15)


def test_a_backup_replaces_nothing_unless_it_is_told_to(tmp_path: Path) -> None:
    assert "no database yet" in run_cli(tmp_path, "db", "backup", "copy").stderr
    with bridge_in(tmp_path, ANY_PORT) as bridge:
        bridge.wait_for_line(r"console +http")
        (tmp_path / "copy").write_text("precious")
        refused = run_cli(tmp_path, "db", "backup", "copy")
        assert refused.returncode == 1
        assert "copy is there already" in refused.stderr
        assert (tmp_path / "copy").read_text() == "precious"
        assert run_cli(tmp_path, "db", "backup", "--force", "copy").returncode == 0
        assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600
        assert values(tmp_path / "copy", "SELECT COUNT(*) FROM runs") == [(0,)]
        (tmp_path / "link").symlink_to("untether.db")
        for itself in ("untether.db", "untether.db-wal", "link"):
            done = run_cli(tmp_path, "db", "backup", "--force", itself)
            assert done.returncode == 1
            assert "is the database itself" in done.stderr
        assert "no folder" in run_cli(tmp_path, "db", "backup", "nowhere/copy").stderr
        assert "is a folder" in run_cli(tmp_path, "db", "backup", "--force", str(tmp_path)).stderr
        checked = run_cli(tmp_path, "db", "check")
        assert (checked.returncode, checked.stdout) == (0, f"✓ {tmp_path}/untether.db is sound\n")
        assert bridge.stop() == 0


def test_a_newer_database_is_refused_in_words_and_left_as_it_is(tmp_path: Path) -> None:
    with bridge_in(tmp_path, ANY_PORT) as bridge:
        bridge.wait_for_line(r"console +http")
        bridge.stop()
    with closing(sqlite3.connect(tmp_path / "untether.db")) as connection:
        connection.execute("PRAGMA user_version=9000")
    before = (tmp_path / "untether.db").read_bytes()
    for command in ([], ["run"], ["db", "check"], ["doctor"]):
        done = run_cli(tmp_path, *command)
        assert done.returncode == 1, command
        said = done.stdout + done.stderr
        assert "The database was written by a newer version of Untether" in said
        assert "has schema 9000" in said
        assert "Install that version again" in said
        assert "Traceback" not in said
    assert (tmp_path / "untether.db").read_bytes() == before


def test_damage_is_found(tmp_path: Path) -> None:
    with bridge_in(tmp_path, ANY_PORT) as bridge:
        bridge.wait_for_line(r"console +http")
        bridge.stop()
    with (tmp_path / "untether.db").open("r+b") as file:
        file.seek(4096 * 2)
        file.write(b"\xff" * 4096 * 3)
    for command in (["db", "check"], ["doctor"]):
        done = run_cli(tmp_path, *command)
        assert done.returncode == 1, done.stdout
        assert "✗" in done.stdout
        assert "Traceback" not in done.stdout + done.stderr


def test_doctor_tells_the_size_of_the_state_and_the_space_left(tmp_path: Path) -> None:
    (tmp_path / "processes" / "a").mkdir(parents=True)
    (tmp_path / "processes" / "a" / "out.jsonl").write_bytes(b"x" * 3_000_000)
    tmp_path.joinpath("untether.toml").write_text(ANY_PORT)
    assert re.search(rf"✓ State: 3\.0 MB in {tmp_path}, [\d.]+ [GT]B free", run_cli(tmp_path, "doctor").stdout)
