"""Where a run works: projects, branches and their worktrees."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from untether.conversation.context import ContextError, Project, Where, resolve, worktree

pytestmark = pytest.mark.anyio


def git(folder: Path, *args: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=T", "-c", "user.email=t@example.com", *args],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


def project(folder: Path) -> Project:
    return Project("shop", str(folder))


async def test_without_project_it_is_home(tmp_path: Path) -> None:
    assert await resolve(None, None, str(tmp_path)) == Where(str(tmp_path))


async def test_branch_needs_a_project(tmp_path: Path) -> None:
    with pytest.raises(ContextError, match="needs a project"):
        await resolve(None, "x", str(tmp_path))


async def test_missing_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(ContextError, match="is not there"):
        await resolve(project(tmp_path / "none"), None, "/")


async def test_new_branch_gets_a_worktree_that_is_reused(repo: Path) -> None:
    where = await resolve(project(repo), "fix/cart", "/")
    assert where.cwd == str(repo / ".worktrees" / "fix" / "cart")
    assert where.title == "shop @fix/cart"
    assert git(Path(where.cwd), "branch", "--show-current") == "fix/cart"
    assert await resolve(project(repo), "fix/cart", "/") == where
    assert git(repo, "status", "--porcelain") == ""  # the worktree folder does not show up as a change


def test_existing_branch_is_checked_out(repo: Path) -> None:
    git(repo, "branch", "old")
    folder = worktree(project(repo), "old")
    assert git(Path(folder), "branch", "--show-current") == "old"


def test_branch_of_origin_is_followed(repo: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(repo, "branch", "theirs")
    git(tmp_path, "clone", "-q", str(repo), str(clone))
    folder = worktree(Project("shop", str(clone)), "theirs")
    assert git(Path(folder), "rev-parse", "--abbrev-ref", "@{upstream}") == "origin/theirs"


def test_current_branch_is_the_project_itself(repo: Path) -> None:
    assert worktree(project(repo), "main") == str(repo)


def test_base_of_the_settings_is_used(repo: Path) -> None:
    git(repo, "branch", "stable")
    (repo / "a.txt").write_text("two\n")
    git(repo, "commit", "-qam", "second")
    folder = worktree(Project("shop", str(repo), worktree_base="stable"), "from-stable")
    assert (Path(folder) / "a.txt").read_text() == "one\n"


@pytest.mark.parametrize("branch", ["../out", "-x", "a..b", ".", "a/../../../b", "a b"])
def test_names_that_leave_the_folder_are_refused(repo: Path, branch: str) -> None:
    with pytest.raises(ContextError, match="is no name for a branch"):
        worktree(project(repo), branch)


def test_a_folder_in_the_way_is_not_touched(repo: Path) -> None:
    (repo / ".worktrees" / "busy").mkdir(parents=True)
    with pytest.raises(ContextError, match="exists and is not the worktree"):
        worktree(project(repo), "busy")


def test_a_folder_without_git_has_no_branches(tmp_path: Path) -> None:
    with pytest.raises(ContextError, match="not a git repository"):
        worktree(Project("plain", str(tmp_path)), "x")
