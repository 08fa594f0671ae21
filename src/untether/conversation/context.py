"""Where a run works: a project's folder, or the worktree of a branch of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import anyio
import anyio.to_thread

from ..model import Record
from ..store.threads import place_name


class Project(Record, frozen=True):
    alias: str
    path: str
    worktrees_dir: str = ".worktrees"
    worktree_base: str | None = None
    default_engine: str | None = None


class Where(Record, frozen=True):
    """A resolved place: the folder to work in, and what to call it."""

    cwd: str
    project: str | None = None
    branch: str | None = None

    @property
    def title(self) -> str:
        return place_name(self.cwd, self.project, self.branch)


class ContextError(Exception):
    """The place cannot be used; the text says why and what to do."""


async def resolve(project: Project | None, branch: str | None, home: str) -> Where:
    """The folder for a project and branch; the worktree is made when it is missing. Raises ContextError."""
    if project is None:
        if branch:
            raise ContextError(
                f"@{branch} needs a project. Name one, for example /myproject @{branch}, or bind one with /ctx set."
            )
        return Where(home)
    if not await anyio.Path(project.path).is_dir():
        raise ContextError(
            f"The folder of project {project.alias} is not there: {project.path}. Correct it in the configuration."
        )
    if not branch:
        return Where(project.path, project.alias)
    try:
        folder = await anyio.to_thread.run_sync(worktree, project, branch)
    except (OSError, ValueError) as error:
        raise ContextError(f"The worktree for {branch[:100]} could not be made: {error}") from error
    return Where(folder, project.alias, branch)


def worktree(project: Project, branch: str) -> str:
    """Reuse or make the worktree of `branch` and return its folder. Raises ContextError.

    A branch is looked for locally, then at origin, else made from the base (`worktree_base`, or the branch that
    origin calls its default, or the current one). The folder stays inside the project's worktree folder.
    """
    root = (Path(project.path) / project.worktrees_dir).resolve()
    folder = (root / branch).resolve()
    if branch.startswith("-") or not folder.is_relative_to(root) or folder == root:
        raise ContextError(f"@{branch} is no name for a branch. Use letters, digits, dots, dashes and slashes.")
    if _git(project.path, "check-ref-format", "--branch", branch).returncode:
        raise ContextError(f"@{branch} is no name for a branch. Use letters, digits, dots, dashes and slashes.")
    if _git(project.path, "rev-parse", "--git-dir").returncode:
        raise ContextError(f"{project.alias} is not a git repository, so it has no branches. Leave out @{branch}.")
    for path, head in _worktrees(project.path):
        if head == branch:
            return path
    if folder.exists():
        raise ContextError(
            f"{folder} exists and is not the worktree of {branch}. Move it away and send the message again."
        )
    made = _add_worktree(project, branch, str(folder))
    if made.returncode:
        raise ContextError(f"The worktree for {branch} could not be made: {_last_line(made.stderr)}")
    _exclude(project, root)
    return str(folder)


def _add_worktree(project: Project, branch: str, folder: str) -> subprocess.CompletedProcess[str]:
    path = project.path
    if _exists(path, f"refs/heads/{branch}"):
        return _git(path, "worktree", "add", folder, branch)
    if _exists(path, f"refs/remotes/origin/{branch}"):
        return _git(path, "worktree", "add", "--track", "-b", branch, folder, f"origin/{branch}")
    base = project.worktree_base
    if base is None:
        head = _git(path, "symbolic-ref", "--short", "refs/remotes/origin/HEAD").stdout.strip()
        base = head or "HEAD"
    return _git(path, "worktree", "add", "-b", branch, folder, base)


def _worktrees(path: str) -> list[tuple[str, str]]:
    """(folder, branch) of the worktrees that exist."""
    listed = _git(path, "worktree", "list", "--porcelain").stdout
    found: list[tuple[str, str]] = []
    for block in listed.split("\n\n"):
        fields = dict(line.partition(" ")[::2] for line in block.splitlines())
        if "branch" in fields and Path(fields["worktree"]).is_dir():
            found.append((fields["worktree"], re.sub(r"^refs/heads/", "", fields["branch"])))
    return found


def _exclude(project: Project, root: Path) -> None:
    """Keep the worktree folder out of the project's status, without touching its .gitignore."""
    if not root.is_relative_to(Path(project.path).resolve()):
        return
    common = _git(project.path, "rev-parse", "--git-common-dir").stdout.strip()
    exclude = (Path(project.path) / common / "info" / "exclude").resolve()
    pattern = f"/{root.relative_to(Path(project.path).resolve())}/"
    before = exclude.read_text() if exclude.exists() else ""
    if pattern not in before.splitlines():
        exclude.parent.mkdir(parents=True, exist_ok=True)
        exclude.write_text(before + ("" if before.endswith("\n") or not before else "\n") + pattern + "\n")


def _exists(path: str, ref: str) -> bool:
    return _git(path, "show-ref", "--verify", "--quiet", ref).returncode == 0


def _git(path: str, *args: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", "-C", path, *args], capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except FileNotFoundError as error:
        raise ContextError("git is not installed, so branches cannot be used.") from error
    except subprocess.TimeoutExpired as error:
        raise ContextError(f"git did not answer within a minute in {path}.") from error


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "git said nothing"
