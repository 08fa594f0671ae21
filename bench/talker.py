"""A scripted agent that prints LINES lines of Claude Code's dialect on its first message, and then says no more.

python talker.py LINES
"""

import sys
import time

from agent import call, receive, result, send  # type: ignore[import-not-found]  # a program beside this one


def main() -> None:
    lines = int(sys.argv[1])
    sys.argv[1:] = ["0", "0", "999"]  # what `agent` reads
    while receive()["type"] != "user":
        pass
    send({"type": "system", "subtype": "init", "cwd": "/repo", "model": "bench", "permissionMode": "default"})
    for number in range((lines - 1) // 2):
        call(f"step_{number}", "Read", file_path=f"/repo/file{number}.py")
        result(f"step_{number}", "1\tpass\n" * 50)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
