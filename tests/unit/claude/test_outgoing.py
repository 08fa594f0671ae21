"""How a message leaves: its priority, commands of the CLI's own, and the files that come with it."""

from __future__ import annotations

import pytest

from tests.support.claude_talk import PROMPT, Talk, message
from untether.model import ActionEvent
from untether.runners.claude.session import ClaudeSession
from untether.session import Attachment, CallResult, Prompt, ReadFile, StartFacts, When, Withdraw

PICTURE = Attachment("/f/dot.png", "dot.png", "image/png")
PAPER = Attachment("/f/paper.pdf", "paper.pdf")
NOTES = Attachment("/f/notes.txt", "notes.txt", "text/plain")


@pytest.mark.parametrize(("when", "priority"), [("now", None), ("next", "later"), ("replace", "now")])
def test_the_place_of_a_message_that_comes_while_it_works(when: When, priority: str | None) -> None:
    talk = Talk()
    talk.init()
    talk.say(2, when)
    assert talk.written[-1].get("priority") == priority


def test_idle_a_message_needs_no_priority() -> None:
    talk = Talk()
    talk.init()
    talk.result()
    talk.say(2, "next")
    assert "priority" not in talk.written[-1]


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("//compact", "/compact"),
        ("//model opus", "/model opus"),
        ("//mcp__server__prompt x", "/mcp__server__prompt x"),
        ("/etc/hosts looks wrong", "/etc/hosts looks wrong"),
        ("// a comment", "// a comment"),
        ("//server/share", "//server/share"),
        ("see //compact", "see //compact"),
    ],
)
def test_two_slashes_are_for_a_command_of_the_cli(text: str, sent: str) -> None:
    talk = Talk()
    talk.init()
    talk.result()
    talk.say(2, text=text)
    assert talk.written[-1]["message"]["content"] == sent


def with_files(*files: Attachment) -> Talk:
    talk = Talk()
    talk.init()
    talk.result()
    prompt = Prompt(message(2).id, "look", files)
    talk.did(talk.session.say(prompt, "next", talk.now))
    return talk


def read(talk: Talk, number: int, result: CallResult) -> None:
    talk.did(talk.session.answer(f"{message(2).id}/{number}", result, talk.now))


def test_a_message_waits_for_its_files_and_those_behind_it_wait_too() -> None:
    talk = with_files(PICTURE, NOTES, PAPER)
    assert talk.last.calls == (
        ReadFile(f"{message(2).id}/0", "/f/dot.png", 3_750_000, binary=True),
        ReadFile(f"{message(2).id}/2", "/f/paper.pdf", 10_000_000, binary=True),
    )
    talk.say(3)
    assert talk.last.writes == ()
    read(talk, 2, CallResult("UERG"))
    assert talk.last.writes == ()
    read(talk, 0, CallResult("UE5H"))
    first, second = talk.written[-2:]
    assert (first["uuid"], second["uuid"]) == (message(2).id, message(3).id)
    assert first["message"]["content"] == [
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "UERG"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "UE5H"}},
        {
            "type": "text",
            "text": "look\n\nAttached files:\n- /f/dot.png (dot.png)\n- /f/notes.txt (notes.txt)\n"
            "- /f/paper.pdf (paper.pdf)",
        },
    ]


def test_a_file_that_cannot_be_read_is_said_to_both() -> None:
    talk = with_files(PICTURE)
    read(talk, 0, CallResult(error="it is larger than 3.8 MB"))
    content = talk.written[-1]["message"]["content"]
    assert content.endswith("- /f/dot.png (dot.png): could not be attached: it is larger than 3.8 MB")
    talk.init()
    (warning,) = (event.action.title for event in talk.of(ActionEvent))
    assert warning == "dot.png could not be read and is only named: it is larger than 3.8 MB"


def test_a_message_that_is_withdrawn_while_its_files_are_read_never_leaves() -> None:
    talk = with_files(PICTURE)
    talk.change(Withdraw(message(2).id))
    assert talk.prompts[-1] == ("2", "withdrawn")
    assert talk.last.writes == ()
    read(talk, 0, CallResult("UE5H"))
    assert talk.last.empty
    talk.say(3)
    assert len(talk.last.writes) == 1


def test_an_agent_that_ends_while_files_are_read_gives_the_message_back() -> None:
    talk = with_files(PICTURE)
    talk.end(code=0)
    assert talk.prompts[-1] == ("2", "handed_back")
    read(talk, 0, CallResult("UE5H"))
    assert talk.last.empty


def test_the_first_message_waits_for_its_files_behind_the_greeting() -> None:
    session = ClaudeSession()
    prompt = Prompt(PROMPT.id, "look", (PICTURE,))
    step = session.begin(StartFacts("p", "claude", "/repo"), prompt, 0.0)
    assert (len(step.writes), len(step.calls)) == (1, 1)
    step = session.answer(f"{PROMPT.id}/0", CallResult("UE5H"), 1.0)
    assert len(step.writes) == 1
