"""Makes text of unknown origin safe to show: no character in it may hide, reorder or break what a person reads."""

from __future__ import annotations

import re

REPLACEMENT = "\ufffd"

# C0 and C1 controls but tab and newline; the characters that reorder text (embeddings, overrides, isolates), with
# which a command can be made to read as another one; halves of surrogate pairs, which no encoder accepts.
_UNSAFE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_NEWLINE = re.compile("\r\n?|[\u2028\u2029]")


def clean_text(text: str) -> str:
    """`text` with line ends as `\\n` and each unsafe character shown as U+FFFD, so that it is seen and not obeyed.

    Everything else stays, letters of right-to-left scripts with their plain marks (LRM, RLM, ALM) included.
    """
    return _UNSAFE.sub(REPLACEMENT, _NEWLINE.sub("\n", text))
