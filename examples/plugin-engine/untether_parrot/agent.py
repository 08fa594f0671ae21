"""The agent: reads a prompt from stdin and prints what it does, one JSON object a line."""

import json
import sys
import uuid


def main() -> None:
    def say(**frame: object) -> None:
        print(json.dumps(frame), flush=True)

    prompt = sys.stdin.read().strip()
    resumed = sys.argv[1:2] == ["--resume"]
    say(type="session", id=sys.argv[2] if resumed else uuid.uuid4().hex)
    say(type="tool", id="1", name="Bash", input={"command": "wc -w"})
    say(type="tool_end", id="1", ok=True)
    if prompt:
        say(type="result", text=f"{prompt}! That is {len(prompt.split())} words.")
    else:
        say(type="result", error="There was nothing to repeat.")


if __name__ == "__main__":
    main()
