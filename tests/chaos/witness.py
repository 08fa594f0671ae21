"""Stands before a real agent and notes each line that it is given, as `agent.py` does: witness.py PROGRAM ARGUMENT…"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path


def main() -> int:
    if "CHAOS_LOG" not in os.environ:  # it is only asked for its version
        os.execv(sys.argv[1], sys.argv[1:])
    log = Path(os.environ["CHAOS_LOG"]) / f"{os.environ.get('UNTETHER_PROCESS', 'none')}.jsonl"
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _: child.send_signal(got))
    assert child.stdin is not None
    try:
        for line in sys.stdin.buffer:
            with log.open("ab") as file:
                file.write(line)
            child.stdin.write(line)
            child.stdin.flush()
        child.stdin.close()
    except BrokenPipeError:
        pass  # it has ended
    code = child.wait()
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
