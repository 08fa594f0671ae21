"""A toy agent: prints what its prompt says. Each line of the prompt is one order, told by its first character.

>TEXT   print TEXT and a newline         <TEXT   print TEXT without a newline
!TEXT   print TEXT to stderr             =N      exit with code N
~NAME   end by the signal NAME           .       read no further order and wait to be ended
$NAME   print a result whose text is that variable of the environment, "-" when it is unset
"""

import json
import os
import signal
import sys


def main() -> None:
    for order in sys.stdin.read().splitlines():
        what, text = order[:1], order[1:]
        if what == ">":
            print(text, flush=True)
        elif what == "<":
            print(text, end="", flush=True)
        elif what == "!":
            print(text, file=sys.stderr, flush=True)
        elif what == "=":
            sys.exit(int(text))
        elif what == "~":
            os.kill(os.getpid(), signal.Signals[text])
        elif what == "$":
            print(json.dumps({"type": "result", "text": os.environ.get(text, "-")}), flush=True)
        elif what == ".":
            signal.pause()


if __name__ == "__main__":
    main()
