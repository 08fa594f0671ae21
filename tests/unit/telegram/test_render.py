"""Cards become messages within Telegram's limits, and nothing of what was to be said is lost on the way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from untether.text.blocks import Block, Code, Copyable, Line, Markdown, Quote
from untether.transport import Button, Card, FileOut
from untether.transports.telegram.render import MAX_PARTS, keyboard, message, parts

BUTTONS = ((Button("Approve", "i:k:a", style="success"), Button("Deny", "i:k:d", style="danger")),)
DIFF = "--- a/x\n+++ b/x\n@@ -1,400 +1,400 @@\n" + "".join(f"-old line {n}\n+new line {n}\n" for n in range(400))


def stored(part: Card) -> Card:
    """A part as it comes back from the store."""
    return msgspec.json.decode(msgspec.json.encode(part), type=Card)


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def assert_fits(part: Card) -> None:
    shown = message(stored(part))
    assert units(shown.text) <= (1024 if part.file else 4096)
    assert len(shown.entities) <= 100
    assert shown.text == shown.text.strip()
    assert shown.text or part.file
    for entity in shown.entities:
        assert 0 <= entity["offset"] < entity["offset"] + entity["length"] <= units(shown.text)


def test_a_short_card_is_one_message_as_it_is() -> None:
    card = Card((Line("Run a command?", "bold"), Code("git push", "bash"), Line("shop", "quiet")), buttons=BUTTONS)
    assert parts(card) == [card]
    shown = message(card)
    assert shown.text == "Run a command?\ngit push\nshop"
    assert shown.entities == [
        {"type": "bold", "offset": 0, "length": 14},
        {"type": "pre", "offset": 15, "length": 8, "language": "bash"},
        {"type": "italic", "offset": 24, "length": 4},
    ]


def test_every_kind_of_formatting_has_the_name_that_telegram_gives_it() -> None:
    card = Card((Markdown("**b** *i* ~~s~~ ||p|| `c` [l](https://e.org/x)"), Quote("q"), Quote("e", expandable=True)))
    found = {entity["type"]: entity for entity in message(card).entities}
    assert set(found) == {
        "bold", "italic", "strikethrough", "spoiler", "code", "text_link", "blockquote", "expandable_blockquote",
    }  # fmt: skip
    assert found["text_link"]["url"] == "https://e.org/x"


def test_offsets_are_counted_in_utf_16_units() -> None:
    assert message(Card((Markdown("\U0001f600 **b**"),))).entities == [{"type": "bold", "offset": 3, "length": 1}]


def test_a_long_answer_is_split_with_the_buttons_under_the_last_part() -> None:
    source = "\n\n".join(f"Paragraph {n} with **bold {n}** and `code {n}`. " + "word " * 40 for n in range(60))
    card = Card((Markdown(source), Line("✓ 3m 41s", "quiet")), buttons=BUTTONS, reply_to="55")
    made = parts(card)
    assert 1 < len(made) <= MAX_PARTS
    for part in made:
        assert_fits(part)
    assert [bool(part.buttons) for part in made] == [False] * (len(made) - 1) + [True]
    assert [part.reply_to for part in made] == ["55"] + [""] * (len(made) - 1)
    assert [part.silent for part in made] == [False] + [True] * (len(made) - 1)
    texts = [message(stored(part)).text for part in made]
    assert all(f"bold {n} and code {n}" in "\n".join(texts) for n in range(60))
    assert texts[-1].endswith("✓ 3m 41s")
    kinds = {entity["type"] for part in made for entity in message(stored(part)).entities}
    assert kinds == {"bold", "code", "italic"}


def test_a_code_block_is_not_cut_when_it_fits_into_a_message() -> None:
    code = "".join(f"line {n}\n" for n in range(250))
    made = parts(Card((Markdown(f"{'word ' * 500}\n\n```python\n{code}```\n\ndone"),)))
    blocks = [e for part in made for e in message(stored(part)).entities if e["type"] == "pre"]
    assert [(entity["language"], entity["length"]) for entity in blocks] == [("python", len(code) - 1)]


def test_what_is_too_long_for_ten_messages_comes_whole_as_a_file_too() -> None:
    source = "\n\n".join(f"Paragraph {n}. " + "word " * 100 for n in range(200))
    card = Card(
        (Markdown(source), Line("✓ 3m 41s", "quiet"), Copyable("↩", "claude --resume abc")),
        buttons=BUTTONS,
        file_name="answer.md",
    )
    made = parts(card)
    assert len(made) == MAX_PARTS
    for part in made:
        assert_fits(part)
    last = made[-1]
    assert last.file == FileOut("answer.md", source)
    assert last.buttons == BUTTONS
    assert message(last).text == (
        f"That is not all: the whole, {len(source):,} characters, is in the file answer.md.\n"
        "✓ 3m 41s\n↩ claude --resume abc"
    )
    assert message(stored(made[0])).text.startswith("Paragraph 0.")
    assert not any(part.buttons for part in made[:-1])


def test_an_enormous_answer_does_not_take_long() -> None:
    made = parts(Card((Markdown("word **bold** `code` " * 100_000),)))
    assert len(made) <= MAX_PARTS
    assert made[-1].file is not None
    assert len(made[-1].file.text) == 2_100_000


def asked(*content: Block, file_name: str = "change.diff") -> Card:
    blocks = (Line("⏸ Edit a file?", "bold"), *content, Line("shop @fix · asked by the main agent", "quiet"))
    return Card(blocks, buttons=BUTTONS, whole="attach", file_name=file_name)


def test_a_long_diff_comes_as_a_valid_diff_and_the_buttons_after_it() -> None:
    first, second = parts(asked(Line("src/cart.py  +400 −400", "bold"), Code(DIFF, "diff")))
    assert first == Card((), silent=True, file=FileOut("change.diff", DIFF))
    assert_fits(second)
    text = message(stored(second)).text
    assert text.startswith("⏸ Edit a file?\nsrc/cart.py  +400 −400\n--- a/x\n+++ b/x\n")
    assert "shop @fix · asked by the main agent" in text
    assert f"This is the beginning. The whole, {len(DIFF):,} characters, is in change.diff above." in text
    assert len(text) < 1100
    assert second.buttons == BUTTONS
    assert not second.silent


def test_a_file_of_several_contents_holds_all_of_them() -> None:
    command = "echo " + "x" * 6000
    first, second = parts(asked(Code(command, "bash"), Code(DIFF, "diff"), file_name="request.md"))
    assert first.file is not None
    assert command in first.file.text
    assert DIFF in first.file.text
    assert_fits(second)


def test_a_plan_is_attached_as_it_was_written() -> None:
    plan = "# Plan\n\n" + "\n".join(f"{n}. Do **step {n}** of `many`" for n in range(500))
    first, second = parts(asked(Markdown(plan), file_name="plan.md"))
    assert first.file is not None
    assert first.file.text == plan + "\n"
    assert_fits(second)


def test_nothing_is_hidden_when_the_lines_around_a_content_are_long_themselves() -> None:
    notes = [Line(f"note {n}: " + "y" * 250) for n in range(60)]
    first, second = parts(asked(*notes, Code(DIFF, "diff")))
    assert first.file is not None
    assert all(note.text in first.file.text for note in notes)
    assert DIFF in first.file.text
    assert_fits(second)
    assert "This is the beginning." in message(stored(second)).text
    assert second.buttons == BUTTONS


def test_a_file_takes_its_text_as_caption_or_before_a_message_of_its_own() -> None:
    file = FileOut("notes.txt", "hello")
    short = Card((Line("Here it is"),), file=file, buttons=BUTTONS)
    assert parts(short) == [short]
    long = parts(Card((Line("z" * 2000),), file=file, buttons=BUTTONS))
    assert [part.file for part in long] == [file, None]
    assert [part.buttons for part in long] == [(), BUTTONS]
    for part in long:
        assert_fits(part)


def test_an_edit_that_is_too_long_is_cut_with_a_sign() -> None:
    shown = message(Card((Code("x\n" * 5000),)))
    assert units(shown.text) <= 4096
    assert shown.text.endswith("…")
    shown = message(Card((Markdown("word " * 100_000),)))
    assert units(shown.text) <= 4096


def test_a_card_without_text_still_is_a_message() -> None:
    assert message(Card((Line(" "),))).text == "…"
    assert message(Card((), file=FileOut("a.txt", "x"))).text == ""


def test_buttons() -> None:
    rows: Any = (
        (Button("Approve", "a", style="success"), Button("Open", url="https://e.org")),
        (Button("Copy", copy="claude --resume 1"),),
        (Button("Copy", copy="x" * 257),),
    )
    assert keyboard(rows) == {
        "inline_keyboard": [
            [
                {"text": "Approve", "style": "success", "callback_data": "a"},
                {"text": "Open", "url": "https://e.org"},
            ],
            [{"text": "Copy", "copy_text": {"text": "claude --resume 1"}}],
        ]
    }
    assert keyboard(()) is None
    assert keyboard(rows[2:]) is None


_WORDS = st.text(alphabet=st.sampled_from("ab \n*_`#>|\U0001f468‍\u0301.-[]()"), max_size=400)
_BLOCKS = st.one_of(
    st.builds(Line, _WORDS),
    st.builds(Code, _WORDS, st.sampled_from(["", "python"])),
    st.builds(Quote, _WORDS, st.booleans()),
    st.builds(Markdown, _WORDS),
    st.builds(Markdown, _WORDS.map(lambda text: text * 40)),
    st.builds(Code, _WORDS.map(lambda text: text * 40), st.just("diff")),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_BLOCKS, max_size=6), st.sampled_from(["split", "attach"]), st.booleans())
def test_whatever_the_content_every_part_fits_and_the_buttons_come_once_and_last(
    blocks: list[Block], whole: Any, with_file: bool
) -> None:
    file = FileOut("f.txt", "x") if with_file else None
    made = parts(Card(tuple(blocks), buttons=BUTTONS, whole=whole, file=file))
    assert 1 <= len(made) <= MAX_PARTS + 1
    for part in made:
        assert_fits(part)
    assert [part.buttons for part in made] == [()] * (len(made) - 1) + [BUTTONS]


@pytest.mark.parametrize("text", ["\ud83d", "a\x00b", "\u202egpj.exe"])
def test_no_text_can_break_the_request(text: str) -> None:
    card = Card((Line(text), Code(text), Markdown(text)), buttons=((Button(text, "d"),),))
    shown = message(card)
    shown.text.encode("utf-8")
    assert "\u202e" not in shown.text
