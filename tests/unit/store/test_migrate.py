"""Opening a database file: schema steps, copies before them, and files that must not be touched."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from untether.store.migrate import Migration, StoreError, backup, integrity_check, load_migrations, open_migrated

STEPS = [
    Migration(1, "notes", "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL); -- the first one"),
    Migration(2, "marks", "CREATE TABLE marks (note INTEGER NOT NULL REFERENCES notes (id))"),
    Migration(
        3,
        "renamed",  # SQLite's way to change a table: make another, copy, swap
        """
        CREATE TABLE new_notes (id INTEGER PRIMARY KEY, body TEXT NOT NULL);
        INSERT INTO new_notes SELECT id, text FROM notes;
        DROP TABLE notes;
        ALTER TABLE new_notes RENAME TO notes;
        """,
    ),
    Migration(4, "stars", "ALTER TABLE notes ADD COLUMN stars INTEGER NOT NULL DEFAULT 0"),
    Migration(5, "chats", "CREATE TABLE chats (id INTEGER PRIMARY KEY)"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "untether.db"


def make(path: Path, steps: int) -> None:
    """A database of an earlier version, with a note that is marked."""
    with closing(open_migrated(path, STEPS[:steps])) as connection:
        connection.execute("INSERT INTO notes VALUES (1, 'hello')")
        if steps > 1:
            connection.execute("INSERT INTO marks VALUES (1)")


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def copies(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir() if ".before-" in file.name)


def test_a_new_file_gets_the_whole_schema_and_no_copies(path: Path) -> None:
    open_migrated(path, STEPS).close()

    assert query(path, "PRAGMA user_version") == [(5,)]
    assert query(path, "SELECT number, name FROM schema_migrations") == [
        (1, "notes"),
        (2, "marks"),
        (3, "renamed"),
        (4, "stars"),
        (5, "chats"),
    ]
    assert copies(path) == []


def test_an_upgrade_keeps_the_data_and_copies_the_file_before_each_step(path: Path) -> None:
    make(path, 2)
    open_migrated(path, STEPS[:4]).close()

    assert query(path, "SELECT body, stars, note FROM notes JOIN marks ON note = notes.id") == [("hello", 0, 1)]
    assert copies(path) == ["untether.db.before-0003", "untether.db.before-0004"]
    assert query(path.with_name("untether.db.before-0003"), "SELECT text FROM notes") == [("hello",)]
    assert query(path.with_name("untether.db.before-0004"), "SELECT body FROM notes") == [("hello",)]
    assert path.with_name("untether.db.before-0004").stat().st_mode & 0o077 == 0


def test_the_last_three_copies_are_kept(path: Path) -> None:
    make(path, 1)
    path.with_name("untether.db.before-mine").touch()  # a person's own stays
    open_migrated(path, STEPS).close()
    assert copies(path) == [
        "untether.db.before-0003",
        "untether.db.before-0004",
        "untether.db.before-0005",
        "untether.db.before-mine",
    ]


def test_nothing_happens_to_a_file_that_is_up_to_date(path: Path) -> None:
    make(path, 2)
    open_migrated(path, STEPS[:2]).close()
    assert copies(path) == []
    assert query(path, "SELECT text FROM notes") == [("hello",)]


@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("CREATE TABLE extra (id); INSERT INTO nowhere VALUES (1)", "no such table: nowhere"),
        ("CREATE TABLE extra (id); DELETE FROM notes", "row 1 of marks refers to a missing row of notes"),
        ("CREATE TABLE extra (id", "syntax error"),
    ],
)
def test_a_step_that_fails_leaves_the_schema_before_it(path: Path, sql: str, complaint: str) -> None:
    make(path, 2)
    with pytest.raises(StoreError, match=complaint) as caught:
        open_migrated(path, [*STEPS[:3], Migration(4, "bad", sql)])

    assert caught.value.kind == "migration"
    assert "0004_bad" in str(caught.value)
    assert query(path, "PRAGMA user_version") == [(3,)]
    assert query(path, "SELECT body FROM notes") == [("hello",)]
    assert query(path, "SELECT name FROM sqlite_master WHERE name = 'extra'") == []


def test_a_newer_schema_is_refused_and_not_touched(path: Path) -> None:
    make(path, 2)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="has schema 2, this version knows 1") as caught:
        open_migrated(path, STEPS[:1])

    assert caught.value.kind == "newer"
    assert "Install that version again" in str(caught.value)
    assert path.read_bytes() == before


def damage_index(path: Path) -> None:
    """Make an index disagree with its table, as only a check of the whole file finds out."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE INDEX by_text ON notes (text)")
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("UPDATE sqlite_master SET sql = 'CREATE INDEX by_text ON notes (id)' WHERE name = 'by_text'")


class TestAFileThatIsNotSound:
    def test_is_not_a_database(self, path: Path) -> None:
        path.write_text("[transports.telegram]\n" * 500)
        with pytest.raises(StoreError, match="file is not a database") as caught:
            open_migrated(path, STEPS)
        assert caught.value.kind == "corrupt"
        assert "move it away" in str(caught.value)
        assert path.read_text() == "[transports.telegram]\n" * 500

    def test_was_cut_short(self, path: Path) -> None:
        make(path, 2)
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(StoreError) as caught:
            open_migrated(path, STEPS)
        assert caught.value.kind == "corrupt"
        assert path.read_bytes() == whole[: len(whole) // 2]
        assert copies(path) == []

    def test_is_damaged_inside_and_therefore_not_upgraded(self, path: Path) -> None:
        make(path, 1)
        page_size = 4096
        broken = bytearray(path.read_bytes())
        broken[page_size : page_size + 100] = b"\xff" * 100
        path.write_bytes(broken)
        with pytest.raises(StoreError) as caught:
            open_migrated(path, STEPS)
        assert caught.value.kind == "corrupt"
        assert path.read_bytes() == broken

    def test_is_empty_as_after_a_crash_at_the_very_start(self, path: Path) -> None:
        path.touch()
        open_migrated(path, STEPS).close()
        assert query(path, "PRAGMA user_version") == [(5,)]


def test_a_file_that_another_program_has_locked(path: Path) -> None:
    make(path, 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError) as caught:
            open_migrated(path, STEPS, busy_timeout=0.05)
    assert caught.value.kind == "locked"
    open_migrated(path, STEPS).close()


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        open_migrated(tmp_path / "missing" / "untether.db", STEPS)
    assert caught.value.kind == "io"


def test_a_path_with_signs_that_mean_something_in_a_link(tmp_path: Path) -> None:
    folder = tmp_path / "50% of #1?mode=ro"
    folder.mkdir()
    make(folder / "untether.db", 1)
    assert query(folder / "untether.db", "SELECT text FROM notes") == [("hello",)]


class TestScripts:
    def test_are_found_by_their_names_and_sorted(self, tmp_path: Path) -> None:
        (tmp_path / "0002_marks.sql").write_text("CREATE TABLE marks (id)")
        (tmp_path / "0001_notes.sql").write_text("CREATE TABLE notes (id)")
        (tmp_path / "README.md").write_text("not a script")
        assert load_migrations(tmp_path) == [
            Migration(1, "notes", "CREATE TABLE notes (id)"),
            Migration(2, "marks", "CREATE TABLE marks (id)"),
        ]

    @pytest.mark.parametrize("names", [["0001_a.sql", "0003_b.sql"], ["0001_a.sql", "0001_b.sql"], ["0000_a.sql"]])
    def test_must_be_numbered_without_gaps(self, tmp_path: Path, names: list[str]) -> None:
        for name in names:
            (tmp_path / name).touch()
        with pytest.raises(ValueError, match="numbered"):
            load_migrations(tmp_path)

    def test_that_we_ship_make_a_sound_database(self, path: Path) -> None:
        open_migrated(path, load_migrations()).close()
        assert integrity_check(path) == []


class TestIntegrityCheck:
    def test_of_a_sound_file_in_use(self, path: Path) -> None:
        make(path, 2)
        with closing(open_migrated(path, STEPS[:2])) as connection:
            connection.execute("BEGIN IMMEDIATE")
            assert integrity_check(path) == []

    def test_names_what_is_wrong(self, path: Path) -> None:
        make(path, 1)
        damage_index(path)
        assert any("by_text" in problem for problem in integrity_check(path))

    def test_names_rows_that_refer_to_nothing(self, path: Path) -> None:
        make(path, 2)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("DELETE FROM notes")
        assert integrity_check(path) == ["row 1 of marks refers to a missing row of notes"]

    def test_of_something_else(self, path: Path) -> None:
        path.write_text("hello " * 1000)
        assert integrity_check(path) == [f"{path}: file is not a database"]
        with pytest.raises(StoreError):
            integrity_check(path.with_name("missing.db"))


def test_a_copy_replaces_an_older_one_and_is_complete(path: Path, tmp_path: Path) -> None:
    make(path, 1)
    target = tmp_path / "copy.db"
    target.write_text("an older copy")
    backup(path, target)
    assert query(target, "SELECT text FROM notes") == [("hello",)]
    assert [file.name for file in tmp_path.iterdir() if not file.name.startswith("untether.db")] == ["copy.db"]
