"""What is known of the app-server protocol of Codex by name, to compare a release with.

Source: `codex app-server generate-json-schema --experimental` of 0.166.0 and 0.171.0. What is handled is in `codex`;
here are the names that are known and lead to nothing, and those that a release has to offer.
"""

from __future__ import annotations

from typing import get_args

from .codex import NOTIFICATIONS, QUIET, REQUESTS
from .codex_items import AnyItem

_REALTIME = """
    thread/realtime/closed thread/realtime/error thread/realtime/item/completed thread/realtime/item/started
    thread/realtime/item/transcript/delta thread/realtime/itemAdded thread/realtime/outputAudio/delta
    thread/realtime/sdp thread/realtime/started thread/realtime/transcript/delta thread/realtime/transcript/done
"""
_REFUSED = """
    account/chatgptAuthTokens/refresh applyPatchApproval attestation/generate currentTime/read execCommandApproval
    item/tool/call
"""
_NEEDED = """
    initialize thread/start thread/resume thread/fork thread/list thread/compact/start turn/start turn/steer
    turn/interrupt thread/backgroundTerminals/clean thread/backgroundTerminals/terminate
"""
_DECISIONS = """
    accept acceptForSession acceptWithExecpolicyAmendment applyNetworkPolicyAmendment decline cancel
"""
_ERRORS = """
    contextWindowExceeded sessionBudgetExceeded usageLimitExceeded rateLimitExceeded flexUnavailable serverOverloaded
    modelNotFound policyCapacityUnavailable cyberPolicy bioPolicy misalignmentPolicyViolation tooManyDenials
    internalServerError unauthorized badRequest threadRollbackFailed sandboxError other inferenceHookDenied
    httpConnectionFailed responseStreamConnectionFailed responseStreamDisconnected responseTooManyFailedAttempts
    activeTurnNotSteerable
"""

KNOWN_NOTIFICATIONS = frozenset([*NOTIFICATIONS, *QUIET, *_REALTIME.split()])
"""Voice (`thread/realtime`) is not used; should it come, it is counted as unknown."""
KNOWN_REQUESTS = frozenset([*REQUESTS, *_REFUSED.split()])
KNOWN_ITEMS = frozenset(str(item.__struct_config__.tag) for item in get_args(AnyItem))
KNOWN_DECISIONS = frozenset(_DECISIONS.split())
KNOWN_ERRORS = frozenset(_ERRORS.split())
NEEDED_METHODS = frozenset(_NEEDED.split())
