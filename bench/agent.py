"""A scripted agent that speaks Claude Code's dialect: it works a little, asks, and notes when it was asked and heard.

    python agent.py ASKS PAUSE SEED …

On a message it asks ASKS times for permission, each time after about PAUSE seconds of work. The command that it asks
about is `ask NUMBER TIME`, TIME being when the line left. Its answer is `heard`, then NUMBER:TIME for each decision
that it read. Times are epoch seconds. SEED, a number, makes the session its own.
"""

import json
import os
import random
import sys
import time
import uuid
from typing import Any

_STEPS = 3  # tool calls between two questions


def send(frame: dict[str, Any]) -> None:
    ids = {"session_id": f"11111111-2222-4333-8444-{int(sys.argv[3]):012}", "uuid": str(uuid.uuid4())}
    data = json.dumps(frame | ids, separators=(",", ":")).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


def receive() -> dict[str, Any]:
    """The next frame. Ends the program when stdin is closed."""
    line = sys.stdin.buffer.readline()
    if not line:
        raise SystemExit
    frame: dict[str, Any] = json.loads(line)
    return frame


def say(message: int, block: dict[str, Any]) -> None:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 20_000, "output_tokens": 40}
    content = {"id": f"msg_{message}", "model": "bench", "role": "assistant", "content": [block], "usage": usage}
    send({"type": "assistant", "message": content, "parent_tool_use_id": None})


def call(id: str, name: str, **input: str) -> None:
    say(0, {"type": "tool_use", "id": id, "name": name, "input": input})


def result(id: str, text: str) -> None:
    block = {"type": "tool_result", "tool_use_id": id, "content": text, "is_error": False}
    send({"type": "user", "message": {"role": "user", "content": [block]}, "parent_tool_use_id": None})


def work(number: int, seconds: float) -> None:
    for step in range(_STEPS):
        call(f"work_{number}_{step}", "Read", file_path=f"/repo/file{step}.py")
        time.sleep(seconds / _STEPS)
        result(f"work_{number}_{step}", "1\tpass\n" * 50)


def ask(number: int) -> float:
    """Ask, and return when the decision was read."""
    id = f"ask_{number}"
    call(id, "Bash", command=f"ask {number}")
    input = {"command": f"ask {number} {time.time():.6f}"}
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": id, "input": input}
    send({"type": "control_request", "request_id": id, "request": request})
    while True:
        frame = receive()
        if frame.get("type") == "control_response" and frame["response"].get("request_id") == id:
            heard = time.time()
            result(id, "done")
            return heard


def turn(asks: int, pause: float, chance: random.Random) -> None:
    send({"type": "system", "subtype": "init", "cwd": "/repo", "model": "bench", "permissionMode": "default"})
    heard: list[str] = []
    for number in range(asks):
        work(number, pause * chance.uniform(0.5, 1.5))
        heard.append(f"{number}:{ask(number):.6f}")
    text = "heard " + " ".join(heard)
    say(1, {"type": "text", "text": text})
    send({"type": "result", "subtype": "success", "is_error": False, "result": text})


def main() -> None:
    asks, pause, chance = int(sys.argv[1]), float(sys.argv[2]), random.Random(sys.argv[3])
    while True:
        frame = receive()
        if frame["type"] == "user":
            turn(asks, pause, chance)
        elif frame["type"] == "control_request":
            response = {"subtype": "success", "request_id": frame["request_id"], "response": {}}
            send({"type": "control_response", "response": response})


if __name__ == "__main__":
    main()
