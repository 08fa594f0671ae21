"""What must be true at the end of every scenario, whatever happened on the way."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest

from tests.chaos.conversation import Expected, Talk
from tests.chaos.world import World, open_rows

_SAID_IN_PASSING = (r"^⏳ queued", r"^↻ Back after")
_PASSING = r"^(▸|⏸|■ Interrupted|⏳)"  # a copy of one of these may stay, when its first sending had an unknown fate


async def check(world: World, said: Talk) -> None:
    """Every message answered once, every approval decided once, each line heard once, nothing left, cost counted once.

    Fails with all that is wrong, and with what was seen.
    """
    if not said.broken:
        await world.settle()
    if world.in_doubt and not said.broken:
        await _tap_the_twin(world)
    problems = [*world.problems, *await _chats(world, said), *_rows(world, said), *_heard(world, said)]
    problems += [f"left open: {row}" for row in open_rows(world)]
    problems += [f"left alive: {pid} {command}" for pid, command in world.processes().items()]
    if problems:
        listed = "\n".join(f"- {problem}" for problem in dict.fromkeys(problems))
        pytest.fail(f"{listed}\n\n{await world.story()}", pytrace=False)


# ----------------------------------------------------------------------------------------------- what the chats show


async def _chats(world: World, said: Talk) -> list[str]:
    """Each answer once, whole, in order and as a reply; beside the answers only what belongs there."""
    problems: list[str] = []
    copies = 0
    for person in (world.ann, world.bob):
        shown = [message for message in await person.shows(sender="bot") if not message["service"]]
        expected = [answer for answer in said.expected if answer.chat == person.chat]
        for answer in expected:
            found, more = _answer(answer, shown)
            problems += found
            copies += more
        known = [part for answer in expected for part in answer.parts]
        known += [*said.closed, *said.extra, *_SAID_IN_PASSING]
        for message in shown:
            if any(re.search(pattern, message["text"], re.M) for pattern in known):
                buttons = [button["text"] for row in message["buttons"] for button in row]
                problems += [f"an open button: {label!r}" for label in buttons if label != "Try again"]
            elif (said.repeats or world.in_doubt) and re.search(_PASSING, message["text"]):
                copies += 1
            else:
                problems.append(f"unexpected in chat {person.chat}: {message['text'][:200]!r}")
        for pattern in (*said.closed, *said.extra):
            copies += max(0, len([m for m in shown if re.search(pattern, m["text"], re.M)]) - 1)
    allowed = said.repeats + world.in_doubt
    if copies > allowed:
        problems.append(f"{copies} repeated messages, at most {allowed} may be")
    return problems


async def _tap_the_twin(world: World) -> None:
    """A request whose sending had an unknown fate may stand there twice: a tap on the other one retires it."""
    for person in (world.ann, world.bob):
        shown = await person.shows(sender="bot")
        if any(button["text"] == "Approve" for message in shown for row in message["buttons"] for button in row):
            toast = await person.press("Approve", wait=10)
            if "Already approved" not in str(toast["answer"]):
                world.problems.append(f"a tap on the second copy of a request was told {toast['answer']}")
            await world.until(lambda: not open_rows(world), "the second copy to be retired")


def _answer(answer: Expected, shown: list[dict[str, Any]]) -> tuple[list[str], int]:
    """What is wrong with one answer, and how many messages of it stand there again."""
    problems = []
    places: list[list[int]] = []
    for part in answer.parts:
        ids = [message["id"] for message in shown if re.search(part, message["text"], re.M)]
        if not ids:
            problems.append(f"{answer.name}: no message shows {part!r}")
        places.append(ids)
    firsts = [ids[0] for ids in places if ids]
    if firsts != sorted(firsts):
        problems.append(f"{answer.name}: parts are out of order: {places}")
    beginning = next((message for message in shown if places[0] and message["id"] == places[0][0]), None)
    if beginning is not None and beginning["reply_to"] != answer.asked:
        problems.append(f"{answer.name}: answers {beginning['reply_to']}, not {answer.asked}")
    again = {id for ids in places for id in ids[1:]}
    return problems, len(again)


# ---------------------------------------------------------------------------------------------------- what is stored


def _rows(world: World, said: Talk) -> list[str]:
    problems = []
    messages = world.rows("SELECT id, text, state FROM messages")
    ended = Counter(
        row["message_id"]
        for row in world.rows("SELECT message_id FROM runs WHERE state IN ('done', 'stopped', 'failed')")
    )
    cut = {row["message_id"] for row in world.rows("SELECT message_id FROM runs WHERE state = 'interrupted'")}
    answered = [message for message in messages if message["state"] == "answered" and message["id"] not in cut]
    for message in answered:
        if ended[message["id"]] != 1:
            problems.append(f"{message['text'][:40]!r} has {ended[message['id']]} finished runs")
    if len(answered) != len(said.expected):
        problems.append(f"{len(answered)} messages count as answered, {len(said.expected)} were to be")
    interactions = world.rows("SELECT state, decided_by FROM interactions")
    decided = [row for row in interactions if row["state"] == "decided"]
    if len(decided) != said.approvals or len(interactions) != said.approvals:
        problems.append(f"requests: {[dict(row) for row in interactions]}, {said.approvals} were to be approved")
    return problems + _cost(world)


def _cost(world: World) -> list[str]:
    """The runs' costs add up to what the agents say that they cost in all."""
    totals: dict[str, float] = {}
    for path in world.state.glob("processes/*/out.jsonl"):
        for line in path.read_bytes().splitlines():
            if b'"total_cost_usd"' in line:
                frame = json.loads(line)
                session = frame["session_id"]
                totals[session] = max(totals.get(session, 0.0), frame["total_cost_usd"])
    (counted,) = world.rows("SELECT COALESCE(SUM(json_extract(usage, '$.cost_usd')), 0) AS cost FROM runs")
    if abs(counted["cost"] - sum(totals.values())) > 1e-9:
        return [f"the runs cost {counted['cost']}, the agents say {sum(totals.values())}"]
    return []


# -------------------------------------------------------------------------------------------- what the agents heard


def heard(world: World) -> list[dict[str, Any]]:
    """Every line that an agent read on its stdin, of all agents."""
    return [
        json.loads(line)
        for path in sorted(world.stdin_log.glob("*.jsonl"))
        for line in path.read_bytes().splitlines()
        if line.strip()
    ]


def _heard(world: World, said: Talk) -> list[str]:
    """No line reached an agent twice; each message reached one, and each approval."""
    lines = heard(world)
    names = Counter(_name(frame) for frame in lines)
    problems = [f"heard {count} times: {name}" for name, count in names.items() if count > 1]
    prompts = {row["prompt_id"] for row in world.rows("SELECT prompt_id FROM messages WHERE state = 'answered'")}
    uuids = {frame["uuid"] for frame in lines if frame["type"] == "user"}
    if missing := prompts - uuids:
        problems.append(f"no agent heard of {missing}")
    allowed = [frame for frame in lines if frame["type"] == "control_response" and "allow" in json.dumps(frame)]
    if len(allowed) != said.approvals:
        problems.append(f"{len(allowed)} approvals reached the agent, {said.approvals} were given")
    return problems


def _name(frame: dict[str, Any]) -> str:
    match frame:
        case {"type": "user", "uuid": uuid}:
            return f"message {uuid}"
        case {"type": "control_response", "response": {"request_id": id}}:
            return f"response {id}"
        case {"type": "control_request", "request_id": id, "request": {"subtype": what}}:
            return f"{what} {id}"
    return json.dumps(frame)
