"""The words and buttons of requests: what an agent asks, how it is answered, and what became of it.

The data of a button is `i:KEY:` and what it does (`Press`): the key identifies the request, numbers its choice, its
question and the option. The same buttons are shown on every surface.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import tzinfo

from ..model import Allow, Answers, Choice, Content, Decision, Deny, Interaction, Question, Record
from ..store.interactions import Given, Pending
from ..text import words
from ..text.blocks import Block, Code, Line, Markdown, Quote
from ..transport import Button, Card, Rows
from .cards import INTERACTION

# What a button does, by the letter after the key. Those in `_NUMBERED` are followed by so many numbers, then by words
# where the surface takes them beside the button.
APPROVE, DENY, WHY, STOP, EDIT, CHOICE = "a", "d", "w", "x", "e", "c"
OPTION, DONE, OTHER, SEND, BACK = "q", "f", "o", "s", "b"
RUN_THIS, NEVER_MIND = "r", "n"
_NUMBERED = {CHOICE: 1, OPTION: 2, DONE: 1, OTHER: 1, BACK: 1, RUN_THIS: 1, NEVER_MIND: 1}

_LABEL = 40  # characters of a button's label; what is longer stands whole in the text
_HALF = 22  # characters of labels that share a row
_LONG = 20  # lines of a content from which on it is folded
_EDIT_ROOM = 3900  # UTF-16 units of a message, with some to spare: an edit cannot go on in a second one

# Answers to a plan that are neither a plain approval nor a plain denial: the sign and the words for what was decided.
_PLAN_WORDS = {
    "accept_edits": ("✓", "Approved, accepting edits"),
    "wait": ("✓", "Approved, but to wait"),
    "revise": ("↻", "Sent back to be revised"),
    "outline": ("↻", "Outline asked for"),
    "discuss": ("↻", "To be discussed first"),
}


class Press(Record, frozen=True):
    """A button of a request, read from its data. `text` is what was typed beside it."""

    letter: str
    numbers: tuple[int, ...] = ()
    text: str = ""


def read_press(data: str) -> Press | None:
    """What follows `i:KEY:` in a button's data; None when it is none of ours."""
    letter, _, rest = data.partition(":")
    numbers: list[int] = []
    for _ in range(_NUMBERED.get(letter, 0)):
        number, _, rest = rest.partition(":")
        if not (number.isascii() and number.isdecimal() and len(number) < 16):
            return None
        numbers.append(int(number))
    return Press(letter, tuple(numbers), rest)


def takes_text(data: str, interaction: Interaction) -> bool:
    """Whether a button asks for words, which a surface with boxes may take beside it."""
    press = read_press(data.split(":", 2)[-1])
    if press is None:
        return False
    if press.letter == CHOICE:
        choice = choice_at(interaction, press.numbers[0])
        return choice is not None and choice.wants_text
    return press.letter in (WHY, EDIT, OTHER)


def choice_at(interaction: Interaction, number: int) -> Choice | None:
    return interaction.choices[number] if number < len(interaction.choices) else None


def choice_of(interaction: Interaction, id: str) -> Choice | None:
    """The choice with an id."""
    return next((choice for choice in interaction.choices if choice.id == id), None)


# ------------------------------------------------------------------------------------------------------ a request


def asked(key: str, interaction: Interaction, where: str, answers: Sequence[Given] = ()) -> Card:
    """A request, with the whole content before the buttons. Of several questions it is the one to answer now."""
    at = step(interaction, answers)
    if at is not None:
        if at < len(interaction.questions):
            return _question(key, interaction, at, answers, where)
        return _summary(key, interaction, answers)
    blocks: list[Block] = [Line(f"⏸ {interaction.act}", "bold"), *content_blocks(interaction.body)]
    if interaction.kind == "permission":
        blocks += [Line(text, "quiet") for text in map(effect, interaction.choices) if text]
    if interaction.note:
        blocks.append(Line(interaction.note, "quiet"))
    if interaction.kind == "question":
        blocks.append(Line("Reply to this message with your answer.", "quiet"))
    blocks.append(_place(interaction, where))
    return Card(
        tuple(blocks),
        buttons=buttons(key, interaction, answers),
        whole="split" if interaction.kind == "plan" else "attach",
        file_name=_file_name(interaction),
    )


def _place(interaction: Interaction, where: str, *before: str) -> Line:
    parts = (*before, where, f"asked by {interaction.asked_by or 'the main agent'}")
    return Line(" · ".join(part for part in parts if part), "quiet")


def effect(choice: Choice) -> str:
    """What a choice's button cannot say in whole; "" when it does."""
    more = beyond_label(choice)
    return f"{choice.label}: {more}" if more else choice.label if len(choice.label) > _LABEL else ""


def beyond_label(choice: Choice) -> str:
    """What a choice's whole label does not say; "" when it says all."""
    said = all(" ".join(line.split()) in choice.label for line in choice.description.splitlines())
    return "" if said else choice.description


def content_blocks(body: Sequence[Content]) -> list[Block]:
    """The whole content of what is asked; what is long is folded."""
    blocks: list[Block] = []
    for piece in body:
        counts = f"  {words.changes(piece.added, piece.removed or 0)}" if piece.added is not None else ""
        if piece.label or counts:
            blocks.append(Line(f"{piece.label}{counts}", "bold"))
        if piece.form == "markdown":
            blocks.append(Markdown(piece.text))
        elif piece.form == "text":
            blocks.append(Line(piece.text))
        elif piece.form != "command" and piece.text.count("\n") >= _LONG:
            blocks.append(Quote(piece.text, expandable=True))
        else:
            language = {"command": "bash", "diff": "diff", "json": "json"}.get(piece.form, piece.language)
            blocks.append(Code(piece.text, language))
    return blocks


def _file_name(interaction: Interaction) -> str:
    forms = {piece.form for piece in interaction.body}
    if "diff" in forms:
        return "change.diff"
    if forms == {"command"}:
        return "command.sh"
    return "plan.md" if interaction.kind == "plan" else "request.md"


# -------------------------------------------------------------------------------------------------------- buttons


def buttons(key: str, interaction: Interaction, answers: Sequence[Given] = ()) -> Rows:
    """The buttons of an open request as it stands now."""
    at = step(interaction, answers)
    if at is not None:
        return _question_buttons(key, interaction, at, answers)
    if interaction.kind == "question":
        return ((_button(key, "Skip", DENY),),)
    plain = []
    if "allow" in interaction.offers:
        plain.append(_button(key, "Approve", APPROVE, style="success"))
    if "deny" in interaction.offers:
        plain.append(_button(key, "Deny", DENY, style="danger"))
    choices = [_choice_button(key, number, choice) for number, choice in enumerate(interaction.choices)]
    if interaction.kind == "plan":
        return _plan_rows(key, interaction, plain, choices)
    last = []
    if "deny" in interaction.offers:
        last.append(_button(key, "Deny and say why", WHY))
    if interaction.editable:
        last.append(_button(key, "Edit…", EDIT))
    if "deny" in interaction.offers:
        last.append(_button(key, "Deny and stop", STOP))
    return tuple(row for row in (tuple(plain), *_paired(choices), tuple(last)) if row)


def _plan_rows(key: str, interaction: Interaction, plain: list[Button], choices: list[Button]) -> Rows:
    """Approve first and deny last, two in a row; a single choice stands beside them."""
    asks_why = "deny" in interaction.offers and not any(choice.wants_text for choice in interaction.choices)
    why: Rows = ((_button(key, "Deny and say why", WHY),),) if asks_why else ()
    if len(choices) <= 1:
        return (*_rows([*plain, *choices], 3), *why)
    approve = [button for button in plain if button.style == "success"]
    deny = [button for button in plain if button.style == "danger"]
    return (*_rows([*approve, *choices, *deny], 2), *why)


def _button(key: str, label: str, letter: str, *numbers: int, style: str = "plain") -> Button:
    data = ":".join((INTERACTION, key, letter, *map(str, numbers)))
    return Button(label, data, style=style)  # type: ignore[arg-type]  # one of its styles


def _choice_button(key: str, number: int, choice: Choice) -> Button:
    return _button(key, words.one_line(choice.label, _LABEL), CHOICE, number, style=choice.style)


def _rows(row: Sequence[Button], width: int) -> Rows:
    return tuple(tuple(row[start : start + width]) for start in range(0, len(row), width))


def _paired(row: Iterable[Button]) -> Rows:
    """Two short ones side by side, a long one alone."""
    rows: list[tuple[Button, ...]] = []
    for button in row:
        short = len(button.label) <= _HALF
        if short and rows and len(rows[-1]) == 1 and len(rows[-1][0].label) <= _HALF:
            rows[-1] = (*rows[-1], button)
        else:
            rows.append((button,))
    return tuple(rows)


# ------------------------------------------------------------------------------------------------------ questions


def step(interaction: Interaction, answers: Sequence[Given]) -> int | None:
    """Which question is to be answered now, their count when only sending is left; None when it asks none."""
    if interaction.kind != "question" or not interaction.questions:
        return None
    for index in range(len(interaction.questions)):
        if index >= len(answers) or not answers[index].done:
            return index
    return len(interaction.questions)


def given_at(answers: Sequence[Given], index: int) -> Given:
    return answers[index] if index < len(answers) else Given()


def answer_text(question: Question, given: Given) -> str:
    """The answer to one question: labels and own words, joined by ", "."""
    labels = [question.options[number].label for number in given.options if number < len(question.options)]
    return ", ".join([*labels, *([given.text] if given.text else [])])


def all_answers(interaction: Interaction, answers: Sequence[Given]) -> Answers:
    texts = {}
    for index, question in enumerate(interaction.questions):
        texts[question.text] = answer_text(question, given_at(answers, index))
    return Answers(texts)


def _title(interaction: Interaction, at: int) -> str:
    text, count = interaction.questions[at].text, len(interaction.questions)
    return f"{text} ({at + 1} of {count})" if count > 1 else text


def _question(key: str, interaction: Interaction, at: int, answers: Sequence[Given], where: str) -> Card:
    question = interaction.questions[at]
    blocks: list[Block] = [Line(f"⏸ {_title(interaction, at)}", "bold")]
    for number, option in enumerate(question.options, 1):
        blocks.append(Line(f"{number} {option.label}" + (f": {option.description}" if option.description else "")))
        if option.preview:
            blocks.append(Code(option.preview))
    if interaction.note:
        blocks.append(Line(interaction.note, "quiet"))
    if question.multiple:
        blocks.append(Line("Tick all that apply, then Done.", "quiet"))
    if not question.options:
        blocks.append(Line("Reply to this message with your answer.", "quiet"))
    blocks.append(_place(interaction, where, question.header))
    rows = _question_buttons(key, interaction, at, answers)
    return Card(tuple(blocks), buttons=rows, whole="attach", file_name="question.md")


def _question_buttons(key: str, interaction: Interaction, at: int, answers: Sequence[Given]) -> Rows:
    count = len(interaction.questions)
    if at == count:
        return ((_button(key, "Send", SEND, style="success"), _button(key, "Back", BACK, at)),)
    question, ticked = interaction.questions[at], given_at(answers, at).options
    options = []
    for number, option in enumerate(question.options):
        tick = ("☑ " if number in ticked else "☐ ") if question.multiple else ""
        options.append(_button(key, words.one_line(tick + option.label, _LABEL), OPTION, at, number))
    rows = list(_paired(options))
    if question.multiple:
        rows.append((_button(key, "Done", DONE, at, style="success"),))
    last = [_button(key, "Other…", OTHER, at)] if question.options else []
    if at:
        last.append(_button(key, "Back", BACK, at))
    last.append(_button(key, "Skip" if count == 1 else "Skip all", DENY))
    return (*rows, tuple(last))


def _summary(key: str, interaction: Interaction, answers: Sequence[Given]) -> Card:
    blocks: list[Block] = [Line("⏸ Send these answers?", "bold")]
    for index, question in enumerate(interaction.questions):
        blocks.append(Line(f"{question.text} {answer_text(question, given_at(answers, index))}"))
    rows = _question_buttons(key, interaction, len(interaction.questions), answers)
    return Card(tuple(blocks), buttons=rows, silent=True, whole="attach", file_name="answers.md")


def noted(interaction: Interaction, at: int, given: Given) -> Card:
    """A question that was answered while others follow: nothing is sent yet, so it claims nothing."""
    answer = answer_text(interaction.questions[at], given)
    return Card((Line(f"{_title(interaction, at)} {_cut(answer, _EDIT_ROOM - 1000)}", "quiet"),))


# ------------------------------------------------------------------------------------------------- typed words


def wanted(interaction: Interaction, key: str, row: int, purpose: str, about: int, reply_to: str) -> Card:
    """Ask for words; says how to get out of it."""
    blocks: list[Block]
    if purpose == "answer":
        blocks = [Line("Reply to this message with your answer."), Line(_title(interaction, about), "quiet")]
    elif purpose == "edit":
        blocks = [
            Line("Send the new text as your next message, whole. It is shown back before anything runs."),
            Code(original(interaction)),
        ]
    else:
        choice = choice_at(interaction, about) if purpose == "choice" else None
        what = f"“{choice.label.rstrip('…')}”" if choice is not None else "the reason"
        blocks = [Line(f"Your next message is {what if choice is None else 'the text for ' + what}, whatever it says.")]
    blocks.append(Line("Back leaves the request as it is.", "quiet"))
    back = ((_button(key, "Back", NEVER_MIND, row),),)
    return Card(tuple(blocks), buttons=back, silent=True, reply_to=reply_to, whole="attach", file_name="original.txt")


def edited(interaction: Interaction, key: str, row: int, text: str, reply_to: str) -> Card:
    """A changed text, whole, to be confirmed."""
    rows = ((_button(key, "Run this", RUN_THIS, row, style="success"), _button(key, "Back", NEVER_MIND, row)),)
    blocks = (
        Line(f"⏸ {interaction.act} With this text instead:", "bold"),
        Code(text, "bash" if interaction.body and interaction.body[0].form == "command" else ""),
        Line("Nothing runs before you tap Run this. A reply to this message changes the text again.", "quiet"),
    )
    return Card(blocks, buttons=rows, reply_to=reply_to, whole="attach", file_name="edited.txt")


def original(interaction: Interaction) -> str:
    """What a person may rewrite: the first piece of what is asked."""
    return interaction.body[0].text if interaction.body else ""


def reminder(interaction: Interaction, since: str, reply_to: str) -> Card:
    """A request is still open; `since` is for how long."""
    return Card((Line(f"⏸ Still waiting for you: {interaction.act} · {since}"),), reply_to=reply_to)


# -------------------------------------------------------------------------------------------------------- outcome


def verdict(interaction: Interaction, decision: Decision) -> str:
    """What a decision is called."""
    return _sign_and_words(interaction, decision)[1]


def toast(interaction: Interaction, decision: Decision) -> str:
    """What the tap that decided is answered with."""
    if isinstance(decision, Deny) and decision.choice == "outline":
        return "Outlining plan…"
    return verdict(interaction, decision)


def _sign_and_words(interaction: Interaction, decision: Decision) -> tuple[str, str]:
    match decision:
        case Answers():
            return "✓", "Answered"
        case Allow(scope, changed):
            found = choice_of(interaction, scope)
            if found is not None and found.id in _PLAN_WORDS:
                return _PLAN_WORDS[found.id]
            if found is not None:
                return "✓", f"Approved · {words.one_line(found.label, 120)}"
            return "✓", "Approved as edited" if changed is not None else "Approved"
        case Deny():
            found = choice_of(interaction, decision.choice)
            if found is not None:
                return _PLAN_WORDS.get(found.id, ("✗", f"Denied · {words.one_line(found.label, 120)}"))
            if interaction.kind == "question":
                return "✗", "Skipped"
            return "✗", "Denied and stopped" if decision.interrupt else "Denied"


def late(pending: Pending, zone: tzinfo | None) -> str:
    """What became of a request that is closed; its time is in `zone` (None: this machine's)."""
    if pending.state == "withdrawn":
        return "No longer needed"
    if pending.state == "decided" and pending.decision is not None and pending.decided is not None:
        said, at = verdict(pending.interaction, pending.decision), words.clock_time(pending.decided, zone)
        if said.startswith(("Approved", "Denied", "Answered", "Skipped")):
            return f"Already {said[0].lower()}{said[1:]} {at}"
        return f"Already decided {at}: {said}"
    return "This request is closed"


def outcome(pending: Pending, by: str, at: float, *, undelivered: bool = False, zone: tzinfo | None = None) -> Card:
    """What becomes of the message after the decision: one quiet line, the content in a quote that opens."""
    interaction, decision = pending.interaction, pending.decision
    blocks: list[Block] = []
    if undelivered:
        blocks.append(Line(_with_brief("✗ The agent ended before it heard your answer", interaction)))
    elif pending.state == "withdrawn" or decision is None:
        blocks.append(Line(_with_brief("■ No longer needed", interaction)))
    elif isinstance(decision, Answers):
        blocks.append(Line(f"✓ Answered: {_cut(_answered(pending), 400)}"))
        blocks.append(Line(f"{by} {words.clock_time(at, zone)}", "quiet"))
    else:
        sign, said = _sign_and_words(interaction, decision)
        blocks.append(Line(_with_brief(f"{sign} {said} by {by} {words.clock_time(at, zone)}", interaction)))
    if isinstance(decision, Deny) and decision.reason and not undelivered:
        blocks.append(Line(f"Reason: {_cut(decision.reason, 400)}", "quiet"))
    room = _EDIT_ROOM - sum(len(block.text) + 1 for block in blocks if isinstance(block, Line))
    if whole := _cut(_content(pending), room):
        blocks.append(Quote(whole, expandable=True))
    return Card(tuple(blocks))


def _with_brief(line: str, interaction: Interaction) -> str:
    """The line with what it is about, in a few words."""
    if interaction.questions:
        brief = interaction.questions[0].text
    elif not interaction.body:
        brief = interaction.act
    else:
        first = interaction.body[0]
        brief = first.label or first.text.strip().lstrip("# ")
    brief = words.one_line(brief, 60)
    return f"{line} · {brief}" if brief else line


def _answered(pending: Pending) -> str:
    """The answers on one line, own words in quotes."""
    decision, found = pending.decision, []
    assert isinstance(decision, Answers)
    for question in pending.interaction.questions:
        if not (text := decision.by_question.get(question.text, "")):
            continue
        labels = {option.label for option in question.options}
        own = not set(text.split(", ")) <= labels and text not in labels
        found.append(f"“{text}”" if own else text)
    return " · ".join(dict.fromkeys(found or decision.by_question.values()))


def _content(pending: Pending) -> str:
    """What was decided on, as text; with what ran in its place when it was edited."""
    whole = "\n".join(piece.text for piece in pending.interaction.body)
    decision = pending.decision
    if isinstance(decision, Allow) and decision.updated_input:
        changed = "\n".join(str(value) for value in decision.updated_input.values())
        return f"{changed}\n\nAsked for was:\n{whole}"
    return whole


def _cut(text: str, limit: int) -> str:
    """The first `limit` UTF-16 units, as messengers count."""
    units = text.encode("utf-16-le", "replace")
    return text if len(units) <= 2 * limit else units[: 2 * limit].decode("utf-16-le", "ignore") + "…"
