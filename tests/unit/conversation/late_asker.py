"""An agent that asks for something after its answer, as a background agent does. Speaks just enough of the dialect."""

import json
import sys

SESSION = "11111111-2222-4333-8444-555555555555"


def say(**frame: object) -> None:
    print(json.dumps({"session_id": SESSION, "uuid": "u", **frame}), flush=True)


for line in sys.stdin:
    frame = json.loads(line)
    if frame["type"] == "control_request":
        reply = {"subtype": "success", "request_id": frame["request_id"], "response": {}}
        say(type="control_response", response=reply)
    elif frame["type"] == "user":
        say(type="system", subtype="init", cwd=".", model="m", permissionMode="default", tools=[])
        text = {"type": "text", "text": "Working in the background."}
        say(type="assistant", message={"id": "m1", "role": "assistant", "model": "m", "content": [text]})
        say(type="result", subtype="success", is_error=False, result="Working in the background.", num_turns=1)
        request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "make"}, "tool_use_id": "t9"}
        say(type="control_request", request_id="r9", request={**request, "agent_id": "a1"})
    elif frame["type"] == "control_response":
        behavior = frame["response"]["response"]["behavior"]
        say(type="system", subtype="init", cwd=".", model="m", permissionMode="default", tools=[])
        say(type="result", subtype="success", is_error=False, result=f"It was {behavior}.", num_turns=1)
