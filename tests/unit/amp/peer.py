"""A scripted Amp: prints the frames of its public description, and what it was told, as an answer."""

from __future__ import annotations

import json
import sys


def say(**frame: object) -> None:
    print(json.dumps(frame), flush=True)


def main() -> None:
    told = json.loads(sys.stdin.readline())
    prompt = told["message"]["content"][0]["text"]
    session = sys.argv[3] if sys.argv[1:3] == ["threads", "continue"] else "T-1"
    say(type="system", subtype="init", cwd="/repo", session_id=session, tools=["Bash"], mcp_servers=[])
    if prompt == "fail":
        say(type="result", subtype="error_during_execution", is_error=True, error="No credits left", session_id=session)
        return
    if prompt == "die":
        sys.exit("amp: out of order")
    call = {"type": "tool_use", "id": "tu1", "name": "Bash", "input": {"command": "ls"}}
    say(type="assistant", message={"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]})
    result = {"type": "tool_result", "tool_use_id": "tu1", "content": "a.txt", "is_error": False}
    say(type="user", message={"role": "user", "content": [result]})
    answer = f"{prompt} {' '.join(sys.argv[1:])}"
    say(type="assistant", message={"role": "assistant", "content": [{"type": "text", "text": answer}]})
    say(type="result", subtype="success", is_error=False, result=answer, duration_ms=1200, num_turns=2)


main()
