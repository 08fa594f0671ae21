"""What people may ask of the session besides messages: what fills the context, and to put the files back."""

from __future__ import annotations

from ...model import ReportEvent
from ...schemas.claude import Response, decode_context_use, decode_rewound
from .control import Control
from .output import Output

REPORTED = ("rewind_files", "get_context_usage")
_NO_CHECKPOINTS = "The files cannot be put back: this session keeps no checkpoints, or none for that message."


class Reports:
    """Questions under way, and their answers as events."""

    def __init__(self, control: Control, output: Output) -> None:
        self._control = control
        self._output = output
        self._rewinding: dict[str, tuple[str, bool]] = {}  # message and dry run, by request

    def rewind(self, prompt_id: str, *, dry_run: bool) -> None:
        """Needs CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING in the environment of the CLI."""
        more = {"dry_run": True} if dry_run else {}
        request = self._control.ask("rewind_files", user_message_id=prompt_id, **more)
        self._rewinding[request] = prompt_id, dry_run

    def context(self) -> None:
        """A second of work and some calls of the API (claude-protocol §4): only when a person wants to know."""
        self._control.ask("get_context_usage")

    def answered(self, subtype: str, response: Response) -> None:
        if subtype == "rewind_files":
            self._rewound(response)
            return
        use = decode_context_use(response.response)
        parts = [[part.name, part.tokens] for part in use.categories]
        detail = {"used": use.total_tokens, "window": use.max_tokens, "parts": parts}
        ok = response.subtype != "error"
        text = "" if ok else response.error or ""
        self._output.events.append(ReportEvent(self._output.engine, "context", ok, text, detail=detail if ok else {}))

    def _rewound(self, response: Response) -> None:
        prompt_id, dry_run = self._rewinding.pop(response.request_id, ("", False))
        found = decode_rewound(response.response)
        ok = response.subtype != "error" and found.can_rewind
        detail = {
            "files": list(found.files_changed),
            "added": found.insertions,
            "removed": found.deletions,
            "dry_run": dry_run,
        }
        text = "" if ok else found.error or response.error or _NO_CHECKPOINTS
        event = ReportEvent(self._output.engine, "rewind", ok, text, prompt_id, detail if ok else {})
        self._output.events.append(event)
