"""Background work: the agents, shells and workflows that go on beside the conversation.

A ledger that accepts what either version sends: 2.1.332 sends the whole set after each change and marks each task;
2.1.197 does neither, so there a task is in the background when its tool call has returned and it has not ended.
Frames about a task may be missing, doubled or late (claude-protocol §9). A task that is begun again keeps its id and
gets another `run_id` (2.1.332).
"""

from __future__ import annotations

from collections.abc import Iterable

from ...model import Wait
from ...schemas.claude_system import BackgroundTask, TaskProgress, TaskStarted, TaskUse


class Task:
    """One task. `call` is the tool call that started it; `behind` when the conversation does not wait for it."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.run = ""
        self.call = ""
        self.label = ""
        self.tokens = 0
        self.behind = False


class Background:
    """Tasks by id, in the order of their start."""

    def __init__(self) -> None:
        self.woken = False  # the end of a task was told since a turn began: the next turn may be about that
        self.alive: dict[str, Task] = {}
        self._all: dict[str, Task] = {}
        self._over: dict[tuple[str, str], None] = {}  # runs that have ended, by task and run

    def started(self, frame: TaskStarted, now: float, *, asked_behind: bool) -> None:
        """`asked_behind`: its tool call asked for the background."""
        if (frame.task_id, frame.run_id) in self._over:
            return
        task = self._task(frame.task_id, now)
        task.run = frame.run_id or task.run
        task.call = frame.tool_use_id or task.call
        task.label = frame.description or task.label
        told = frame.is_backgrounded
        task.behind = task.behind or (asked_behind if told is None else told)

    def progress(self, frame: TaskProgress) -> None:
        """What a sub-agent has used so far."""
        task = self.alive.get(frame.task_id)
        if task is not None and frame.usage is not None:
            self._used(task, frame.usage)

    def call_returned(self, call: str) -> bool:
        """A tool call has its result. True when a task of it lives on: that one is in the background."""
        for task in self.alive.values():
            if task.call == call:
                task.behind = True
                return True
        return False

    def moved(self, task_id: str) -> None:
        """The task was sent to the background."""
        if task := self.alive.get(task_id):
            task.behind = True

    def ended(self, task_id: str) -> None:
        task = self.alive.pop(task_id, None)
        if task is not None:
            self._over[task_id, task.run] = None

    def notified(self, task_id: str) -> None:
        """The conversation is told of the end; for a background task a turn about it follows."""
        self.ended(task_id)
        task = self._all.get(task_id)
        self.woken = self.woken or (task is not None and task.behind)

    def replaced(self, tasks: Iterable[BackgroundTask], now: float) -> None:
        """The whole set of what works in the background."""
        listed = {task.task_id: task for task in tasks}
        for task_id in [id for id, task in self.alive.items() if task.behind and id not in listed]:
            self.ended(task_id)
        for task_id, found in listed.items():
            task = self._task(task_id, now)
            task.behind = True
            task.run = found.run_id or task.run
            task.label = found.description or task.label

    def name(self, task_id: str) -> str:
        """The description of a task, also of one that has ended."""
        task = self._all.get(task_id)
        return task.label if task is not None else ""

    def behind(self) -> list[str]:
        """The ids of the tasks that the conversation does not wait for."""
        return [id for id, task in self.alive.items() if task.behind]

    def waits(self) -> list[Wait]:
        return [
            Wait("background", task.since, None, task.label, id, task.tokens)
            for id, task in self.alive.items()
            if task.behind
        ]

    def _used(self, task: Task, use: TaskUse) -> None:
        task.tokens = max(task.tokens, use.total_tokens or 0)

    def _task(self, task_id: str, now: float) -> Task:
        task = self.alive.get(task_id)
        if task is None:
            task = self.alive[task_id] = self._all[task_id] = Task(now)
        return task
