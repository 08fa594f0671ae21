"""Lines that are not as they should be: none ends the run, and nothing around the damage is lost."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.claude_talk import Talk
from untether.model import ActionEvent, CompletedEvent, StartedEvent
from untether.schemas import claude as schema
from untether.schemas.claude import NotAFrame, decode
from untether.schemas.tolerant import Unknown


def test_a_stray_line_is_a_warning_and_the_run_goes_on() -> None:
    talk = Talk()
    talk.init()
    (warning,) = talk.feed(b"npm WARN deprecated something")
    assert isinstance(warning, ActionEvent)
    assert warning.action.kind == "warning"
    assert warning.action.title == "Claude Code printed a line that is not understood"
    assert warning.action.detail == {"line": "npm WARN deprecated something"}
    talk.text("Fine.")
    talk.result("Fine.")
    assert talk.of(CompletedEvent)[0].answer == "Fine."


def test_a_warning_before_the_session_is_known_comes_after_its_start() -> None:
    talk = Talk()
    assert talk.feed(b"hello from a wrapper script") == []
    kinds = [type(event) for event in talk.init()]
    assert kinds[0] is StartedEvent
    assert ActionEvent in kinds


@pytest.mark.parametrize("line", [b"", b"   ", b"\0\0", b"\xef\xbb\xbf", b"\r"])
def test_empty_lines_are_nothing(line: bytes) -> None:
    talk = Talk()
    talk.init()
    assert talk.feed(line) == []


@pytest.mark.parametrize(
    "damage",
    [
        b"some wrapper: %s",
        b"\0\0%s\0",
        b"\xef\xbb\xbf%s",
        b"%s\r",
        b"{curly} words %s",
    ],
)
def test_a_frame_survives_what_is_around_it(damage: bytes) -> None:
    talk = Talk()
    talk.init()
    talk.feed(damage % b'{"type":"result","subtype":"success","is_error":false,"result":"Done."}')
    assert talk.of(CompletedEvent)[0].answer == "Done."


@pytest.mark.parametrize("text", [rb"\ud800 half", b"\xff\xfe bytes", b"a\ttab", b"nul \0"])
def test_text_that_is_no_text_is_shown_as_far_as_it_is(text: bytes) -> None:
    talk = Talk()
    talk.init()
    talk.feed(b'{"type":"result","subtype":"success","is_error":false,"result":"A%sZ"}' % text)
    (completed,) = talk.of(CompletedEvent)
    assert completed.answer[0] + completed.answer[-1] == "AZ"
    msgspec.json.encode(completed)


def test_a_field_of_the_wrong_type_is_lost_and_the_rest_stays() -> None:
    frame = decode(
        b'{"type":"result","subtype":"success","is_error":false,"result":"Done.","num_turns":"three",'
        b'"usage":{"input_tokens":"many","output_tokens":7},"errors":["one",2],"modelUsage":{"m":[],"n":{"inputTokens":3}}}'
    )
    assert isinstance(frame, schema.Result)
    assert (frame.result, frame.num_turns) == ("Done.", None)
    assert frame.usage is not None
    assert (frame.usage.input_tokens, frame.usage.output_tokens) == (None, 7)
    assert frame.errors == ("one",)
    assert list(frame.model_usage) == ["n"]


def test_an_answer_with_odd_blocks_keeps_its_text() -> None:
    talk = Talk()
    talk.init()
    talk.assistant({"type": "hologram", "data": 1}, {"type": "text", "text": "Seen."}, 5, {"type": "tool_use"})
    talk.result("")
    assert talk.of(CompletedEvent)[0].answer == "Seen."
    assert talk.session.unknown == {"block/hologram": 1}


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        ({"type": "telepathy"}, "type/telepathy"),
        ({"type": "system", "subtype": "weather"}, "system/weather"),
        ({"no": "type"}, "type/"),
        ({"type": "control_request", "request_id": "r", "request": {"subtype": "dance"}}, "control_request/dance"),
        ({"type": "result", "subtype": "error_of_a_new_kind", "is_error": True}, "result=error_of_a_new_kind"),
        ({"type": "system", "subtype": "status", "permissionMode": "yolo"}, "permission_mode=yolo"),
        ({"type": "system", "subtype": "task_updated", "patch": {"status": "asleep"}}, "task_status=asleep"),
        ({"type": "rate_limit_event", "rate_limit_info": {"status": "maybe"}}, "rate_limit=maybe"),
        ({"type": "command_lifecycle", "command_uuid": "u", "state": "lost"}, "command_lifecycle=lost"),
    ],
)
def test_unknown_names_are_counted(frame: dict[str, object], name: str) -> None:
    talk = Talk()
    talk.init()
    for _ in range(2):
        talk.feed(frame)
    assert talk.session.unknown == {name: 2}


def test_a_line_over_the_limit_is_told() -> None:
    talk = Talk()
    talk.init()
    (warning,) = talk.did(talk.session.skipped(70_000_000, talk.now))
    assert isinstance(warning, ActionEvent)
    assert warning.action.title == "A line of 70 MB from Claude Code was too long and is left out"


def test_what_is_no_object_is_no_frame() -> None:
    for line in (b"[1]", b"null", b"12", b'"text"', b"{", b'{"type":', b"[" * 100_000):
        with pytest.raises(NotAFrame):
            decode(line)
    assert decode(b'{"type":7}') == Unknown("type/")


def test_deep_nesting_is_survived() -> None:
    talk = Talk()
    talk.init()
    talk.feed(b'{"type":"user","message":{"content":[]},"deep":' + b"[" * 50_000 + b"]" * 50_000 + b"}")
    talk.result()
    assert talk.of(CompletedEvent)[0].ok
