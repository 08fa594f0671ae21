"""The keeper as a program: it owns one agent, stores all it prints, and is told what to do over its socket."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.process.agents import launch, lives
from tests.unit.process.keepers import (
    QUICK,
    Caller,
    attached,
    encoded,
    end_all,
    keep,
    keeper_pid,
    kill_keeper,
    output,
    state,
    wait_for,
)
from untether.process import keeper
from untether.process.host import Launch
from untether.process.journal import JournalReader
from untether.process.kept import KEEPER_COMMAND, standing

pytestmark = pytest.mark.skipif(os.name != "posix", reason="keepers need Unix sockets")

WAIT = "\nwhile True: time.sleep(60)"
DEAF = "signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
ECHO = "for line in sys.stdin: say(line.strip())"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "p"
    end_all(tmp_path / "p")


def line_count(folder: Path) -> int:
    return output(folder).count(b"\n")


def first_pid(folder: Path) -> int:
    """The number that the agent prints on its first line."""
    wait_for(lambda: line_count(folder), "the first line")
    return int(output(folder).split()[0])


# ------------------------------------------------------------------------------------------------------------ its start


def test_the_agent_gets_what_it_was_to_get_and_nothing_of_the_keeper(folder: Path, tmp_path: Path) -> None:
    source = """
        import json, resource
        say(json.dumps([os.getcwd(), sorted(os.environ.items()), os.umask(0), os.getsid(0) == os.getpid()]))
        say(sorted(int(name) for name in os.listdir('/proc/self/fd'))[:-1])
        say(open('/proc/self/status').read().split('SigIgn:')[1].split()[0])
    """
    agent = launch(source)
    plan = Launch(agent.argv, str(tmp_path), {"PATH": "/usr/bin", "LC_ALL": "C", "ODD": "\udcff=x"})
    umask = os.umask(0o027)
    keep(folder, plan)
    os.umask(umask)
    wait_for(lambda: line_count(folder) == 3, "the agent's words")
    first, files, ignored = output(folder).decode().splitlines()
    assert json.loads(first) == [
        str(tmp_path),
        [["LC_ALL", "C"], ["ODD", "\udcff=x"], ["PATH", "/usr/bin"]],
        0o027,
        True,
    ]
    assert json.loads(files) == [0, 1, 2]
    # What the keeper ignores for itself, it gives back: no more is ignored than before it (a shell, nohup), besides
    # the two that the agent, a Python program here, ignores itself.
    own = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    assert int(ignored, 16) & ~own & ~ignored_here() == 0


def ignored_here() -> int:
    """The signals that this process ignores, as a mask."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("SigIgn:")).split()[1], 16)


def test_no_variable_is_added_by_python(folder: Path) -> None:
    keep(folder, Launch(("/usr/bin/env",), "/", {"ONLY": "this"}))
    wait_for(lambda: "exit" in state(folder), "the end")
    assert output(folder) == b"ONLY=this\n"


def test_the_folder_is_private_and_marked_before_the_agent_runs(folder: Path) -> None:
    agent = launch("say(os.path.exists(sys.argv[1]))")
    keep(folder, Launch((*agent.argv, str(folder / "started")), agent.cwd, agent.env))
    wait_for(lambda: line_count(folder), "the agent's word")
    assert output(folder) == b"True\n"
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in folder.iterdir()}
    assert modes.keys() >= {"lock", "started", "out.jsonl", "out.times", "err.log", "state.json", "sock"}
    assert set(modes.values()) == {0o600}


def test_nobody_is_its_parent_and_no_terminal_its_own(folder: Path) -> None:
    keep(folder, launch(WAIT))
    pid = keeper_pid(folder)
    process = keeper.look_up(pid)
    assert process is not None
    assert process.parent != os.getpid()
    assert process.session == pid


def test_a_folder_is_kept_by_one_keeper_and_used_once(folder: Path) -> None:
    keep(folder, launch("say('up'); sys.stdin.read()"))
    assert keep(folder, launch("say('again')"))["refused"] == "taken"
    with attached(folder) as bridge:
        bridge.call("stop")
        bridge.call("release")
    wait_for(lambda: standing(folder) == "ended", "the keeper's end")
    assert keep(folder, launch("say('again')"))["refused"] == "used"
    assert output(folder) == b"up\n"


def test_a_folder_in_which_nothing_was_started_yet_may_be_started_again(folder: Path) -> None:
    folder.mkdir()
    for name in ("lock", "sock", "out.jsonl", "out.times", "err.log"):  # as a keeper leaves it that dies just then
        (folder / name).touch()
    assert standing(folder) == "new"
    assert "agent" in keep(folder, launch("say('up')"))


@pytest.mark.parametrize(
    ("program", "cwd", "kind", "reason"),
    [
        ("no-such-agent", "/", "program", "No such file or directory"),
        ("{tmp}/text", "/", "program", "Permission denied"),
        ("nul\0byte", "/", "program", "Invalid argument"),
        ("sh", "{tmp}/gone", "folder", "No such file or directory"),
    ],
)
def test_an_agent_that_cannot_be_started(
    folder: Path, tmp_path: Path, program: str, cwd: str, kind: str, reason: str
) -> None:
    (tmp_path / "text").write_text("text")
    plan = Launch((program.format(tmp=tmp_path),), cwd.format(tmp=tmp_path), {"PATH": "/usr/bin:/bin"})
    answer = keep(folder, plan)
    assert (answer["refused"], answer["reason"]) == (kind, reason)
    wait_for(lambda: standing(folder) == "ended", "the keeper's end")
    assert state(folder)["exit"]["note"] == f"the agent could not be started: {reason}"


def test_it_goes_on_when_the_one_who_started_it_is_gone(folder: Path) -> None:
    plan = encoded(folder, launch("say('up'); sys.stdin.read()"))
    starter = subprocess.Popen(KEEPER_COMMAND, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert starter.stdin is not None
    assert starter.stdout is not None
    starter.stdout.close()
    starter.communicate(plan)
    wait_for(lambda: (folder / "out.jsonl").exists() and line_count(folder), "the agent's word")
    with attached(folder) as bridge:
        assert bridge.write((0, 1, 0), b"hello\n") == "written"


def test_half_a_plan_starts_nothing(folder: Path) -> None:
    plan = encoded(folder, launch("say('up')"))[:-10]
    done = subprocess.run(KEEPER_COMMAND, cwd=folder, input=plan, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert standing(folder) == "new"


# ------------------------------------------------------------------------------------------------------- what it stores


def test_a_burst_at_exit_is_stored_to_the_byte_and_timed(folder: Path) -> None:
    before = time.time()
    keep(folder, launch("for n in range(4000): say(f'{n:099d}')\nos.write(1, b'half')"))
    wait_for(lambda: "exit" in state(folder), "the end")
    assert output(folder) == b"".join(b"%099d\n" % n for n in range(4000)) + b"half"
    reader = JournalReader(folder)
    lines = list(reader.lines())
    assert len(lines) == 4001
    times = [line.time for line in lines]
    assert before < times[0] <= times[-1] < time.time()
    assert times == sorted(times)
    end = reader.state()
    assert end is not None
    assert (end.exit.code, end.printed, end.stored) == (0, 400_004, 400_004)


def test_head_and_tail_of_stderr_are_kept(folder: Path) -> None:
    keep(folder, launch("os.write(2, b'first words ' + b'x' * 5_000_000 + b' last words'); sys.exit(3)"))
    wait_for(lambda: "exit" in state(folder), "the end")
    kept = (folder / "err.log").read_text()
    assert kept.startswith("first words x")
    assert kept.endswith("x last words")
    assert f"[{5_000_000 + 23 - 24 * 1024} bytes left out]" in kept
    end = state(folder)["exit"]
    assert (end["code"], end["stderr_tail"]) == (3, kept[-16 * 1024 :])


def test_short_stderr_is_kept_once(folder: Path) -> None:
    keep(folder, launch("os.write(2, b'only words')"))
    wait_for(lambda: "exit" in state(folder), "the end")
    assert (folder / "err.log").read_text() == state(folder)["exit"]["stderr_tail"] == "only words"


def test_a_bridge_that_does_not_read_holds_nothing_up(folder: Path) -> None:
    keep(
        folder,
        launch(
            "sys.stdin.readline()\nfor n in range(40_000): say('x' * 999)\nfor n in range(2000): say(n); time.sleep(0)"
        ),
    )
    with attached(folder) as bridge:
        bridge.send("write", b"go\n", place=[0, 1, 0])
        wait_for(lambda: "exit" in state(folder), "the end")
        bridge.note("grown", offset=len(output(folder)))
        assert bridge.end()["code"] == 0
    assert line_count(folder) == 42_000


def test_at_its_cap_the_journal_takes_no_more_and_the_agent_waits(folder: Path) -> None:
    keep(folder, launch("for n in range(20_000): say(f'{n:099d}')"), journal_cap=100_050)
    with attached(folder) as bridge:
        wait_for(lambda: state(folder)["blocked"] == "journal", "the cap")
        assert len(output(folder)) == 100_050
        assert bridge.call("stop")["state"] == "ended"
        bridge.end()
    stored = output(folder)
    assert len(stored) > 100_050  # what was in the pipe when the agent ended
    assert b"".join(b"%099d\n" % n for n in range(20_000)).startswith(stored)


def test_with_too_little_free_space_the_agent_waits_and_may_be_stopped(folder: Path) -> None:
    keep(folder, launch("for n in range(20_000): say(f'{n:099d}')" + WAIT), disk_floor=2**62)
    with attached(folder) as bridge:
        wait_for(lambda: state(folder)["blocked"] == "disk", "the floor")
        assert output(folder) == b""
        bridge.call("stop")
        assert bridge.end()["stopped"]
    assert output(folder).startswith(b"0" * 99 + b"\n")


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="mounting a disk needs root")
def test_a_full_disk_holds_the_agent_and_loses_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    folder = disk / "p"
    try:
        (disk / "ballast").write_bytes(b"x" * 2_700_000)
        keep(folder, launch("sys.stdin.readline()\nfor n in range(20_000): say(f'{n:099d}')"))
        with attached(folder) as bridge:
            bridge.write((0, 1, 0), b"go\n")
            wait_for(lambda: len(output(folder)) > 100_000 and not os.statvfs(disk).f_bavail, "the full disk")
            bridge.note("blocked", reason="disk")
            assert lives(bridge.call("observe", version=1)["agent"])
            (disk / "ballast").unlink()
            bridge.note("blocked", reason="")
            assert bridge.end()["code"] == 0
        assert output(folder) == b"".join(b"%099d\n" % n for n in range(20_000))
        assert [line.end for line in JournalReader(folder).lines()] == list(range(100, 2_000_001, 100))
        kill_keeper(folder)
    finally:
        end_all(folder)
        subprocess.run(["umount", disk], check=True)


# -------------------------------------------------------------------------------------------------------------- writes


def test_each_place_is_written_once_whoever_repeats_it(folder: Path) -> None:
    keep(folder, launch(ECHO))
    with attached(folder, 1) as bridge:
        assert [bridge.write((0, 1, n), b"%d\n" % n) for n in (0, 1, 1, 0, 2)] == ["written"] * 5
        assert bridge.call("write", b"other\n", place=[0, 1, 1]) == {
            "id": 7,
            "state": "refused",
            "reason": "another line was accepted for this place",
        }
    with attached(folder, 2) as bridge:
        assert bridge.write((0, 1, 2), b"2\n") == "written"
        assert bridge.write((0, 0, 5), b"of newer code, for a place long past\n") == "past"
        assert bridge.write((9, 1, 0), b"3\n") == "written"
        bridge.call("close_stdin", within=5.0)
        bridge.end()
    assert output(folder) == b"0\n1\n2\n3\n"


def test_a_line_is_accepted_first_and_written_when_the_agent_reads(folder: Path) -> None:
    source = """
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        say(os.getpid())
        signal.sigwait({signal.SIGUSR1})
        say(len(sys.stdin.readline()))
        say(sys.stdin.readline().strip())
    """
    keep(folder, launch(source))
    agent = first_pid(folder)
    large = b"x" * 3_000_000 + b"\n"
    with attached(folder, 1) as lost:
        first = lost.send("write", large, place=[0, 1, 0])
        lost.until(lambda: {"id": first, "state": "accepted", "reason": ""} in lost.replies)
    with attached(folder, 2) as bridge:
        again = bridge.send("write", large, place=[0, 1, 0])
        after = bridge.send("write", b"after\n", place=[0, 2, 0])
        bridge.until(lambda: len(bridge.replies) == 3)
        assert [reply["state"] for reply in bridge.replies[1:]] == ["accepted", "accepted"]
        os.kill(agent, signal.SIGUSR1)
        assert bridge.reply(again)["state"] == bridge.reply(after)["state"] == "written"
        bridge.end()
    assert output(folder).split()[1:] == [b"3000001", b"after"]


def test_half_a_frame_is_not_written(folder: Path) -> None:
    keep(folder, launch(ECHO))
    with attached(folder, 1) as bridge:
        bridge.send_raw(bridge.frame("write", b"never\n", place=[0, 1, 0])[:-3])
    with attached(folder, 2) as bridge:
        assert bridge.write((0, 1, 0), b"whole\n") == "written"
        bridge.call("close_stdin", within=5.0)
        bridge.end()
    assert output(folder) == b"whole\n"


def test_lines_fail_when_stdin_is_closed(folder: Path) -> None:
    keep(folder, launch("os.close(0); say('closed')" + WAIT))
    wait_for(lambda: line_count(folder), "the agent's word")
    with attached(folder) as bridge:
        assert bridge.call("write", b"x\n", place=[0, 1, 0])["reason"] == "the agent has closed its stdin"
        assert bridge.write((0, 1, 0), b"x\n") == "failed"  # a repeat joins
        assert bridge.write((0, 2, 0), b"y\n") == "failed"


def test_closing_stdin_waits_for_the_line_in_progress_but_not_for_ever(folder: Path) -> None:
    keep(folder, launch("say('up')" + WAIT))
    with attached(folder) as bridge:
        line = bridge.send("write", b"x" * 1_000_000, place=[0, 1, 0])
        close = bridge.send("close_stdin", within=0.2)
        late = bridge.send("write", b"late\n", place=[0, 2, 0])
        assert bridge.reply(late)["state"] == "failed"
        assert not any(reply["id"] == close for reply in bridge.replies)
        assert bridge.reply(line)["reason"] == "stdin is closed"
        assert bridge.reply(close)["state"] == "closed"
        assert bridge.call("close_stdin", within=5.0)["state"] == "closed"


def test_an_agent_without_stdin_reads_its_end_at_once(folder: Path) -> None:
    keep(folder, launch("say(repr(sys.stdin.read()))", stdin=False))
    wait_for(lambda: line_count(folder), "the agent's word")
    assert output(folder) == b"''\n"


# --------------------------------------------------------------------------------------------------------- who may call


def test_the_newest_bridge_controls(folder: Path) -> None:
    keep(folder, launch(ECHO))
    with attached(folder, 5) as old, attached(folder, 6) as new:
        assert old.note("replaced")["epoch"] == 6
        assert old.hung_up()
        with Caller(folder) as late:
            reply = late.call("attach", version=1, epoch=5)
            assert (reply["state"], reply["error"], reply["epoch"]) == ("error", "epoch", 6)
            assert late.hung_up()
        assert new.write((0, 1, 0), b"mine\n") == "written"
    with attached(folder, 6) as again:  # the same bridge, after its connection broke
        assert again.write((0, 1, 0), b"mine\n") == "written"


def test_observers_see_and_may_stop_but_not_write(folder: Path) -> None:
    keep(folder, launch(ECHO))
    with attached(folder) as bridge:
        with Caller(folder) as nosy:
            nosy.call("observe", version=1)
            assert nosy.call("write", place=[0, 1, 0])["error"] == "control"
            assert nosy.hung_up()
        with Caller(folder) as nosy:
            nosy.send("write", b"x" * 1000, place=[0, 1, 0])
            assert nosy.hung_up()
        with Caller(folder) as observer:
            observer.call("observe", version=1)
            bridge.write((0, 1, 0), b"hello\n")
            observer.note("grown", offset=6)
            assert observer.call("stop")["state"] == "ended"
        assert bridge.end()["stopped"]
    assert output(folder) == b"hello\n"


@pytest.mark.parametrize("orphan", [False, True])
def test_the_agent_and_what_it_started_are_refused(folder: Path, orphan: bool) -> None:
    source = """
        import json, socket
        def ask():
            keeper = socket.socket(socket.AF_UNIX)
            keeper.connect(sys.argv[1])
            try: keeper.sendall(b'{"id":1,"call":"attach","version":1,"epoch":99}\\n')
            except OSError: pass
            say(keeper.makefile().readline().strip())
        if sys.argv[2] == 'True':
            if os.fork() == 0:
                os.setsid()
                if os.fork(): os._exit(0)
                while os.getppid() == os.getsid(0): time.sleep(0.01)
                ask()
                os._exit(0)
        else: ask()
    """
    agent = launch(source)
    keep(folder, Launch((*agent.argv, str(folder / "sock"), str(orphan)), agent.cwd, agent.env))
    wait_for(lambda: line_count(folder), "the agent's word")
    answer = json.loads(output(folder))
    assert (answer["error"], answer["reason"]) == ("peer", "the caller belongs to the agent of this process")
    with attached(folder, 1):  # and nothing came of it
        pass


@pytest.mark.parametrize(
    "rubbish",
    [
        b"hello\n",
        b"[1]\n",
        b'{"call":"attach"}\n',
        b'{"call":"observe","size":-1}\n',
        b"[" * 50_000 + b"\n",
        b"x" * 70_000,
    ],
)
def test_rubbish_ends_the_conversation_and_nothing_else(folder: Path, rubbish: bytes) -> None:
    keep(folder, launch(ECHO))
    with Caller(folder) as caller:
        caller.send_raw(rubbish)
        assert caller.hung_up()
    with attached(folder) as bridge:
        assert bridge.call("sing")["error"] == "call"
        assert bridge.write((0, 1, 0), b"hello\n") == "written"


# ------------------------------------------------------------------------------------------------------------- the end


def test_an_agent_deaf_to_all_but_the_last_step_is_ended_with_its_grandchild(folder: Path) -> None:
    grandchild = "setsid sh -c 'trap \"\" TERM INT HUP; echo $$; while :; do sleep 1; done' &"
    keep(folder, launch(f"{DEAF}subprocess.run(['sh', '-c', {grandchild!r}]){WAIT}"))
    pid = first_pid(folder)
    with attached(folder) as bridge:
        began = time.monotonic()
        reply = bridge.call("stop")
        assert time.monotonic() - began < 4
        assert (reply["state"], reply["step"]) == ("ended", "SIGKILL")
        assert not lives(pid)
        end = bridge.end()
    assert (end["signal"], end["stopped"], end["note"]) == ("SIGKILL", True, "it ended at SIGKILL")
    assert pid in [row[0] for row in state(folder)["ended"]]
    assert state(folder)["left"] == []


@pytest.mark.parametrize(
    ("source", "step", "code", "ended_by"),
    [
        ("say('up'); sys.stdin.read(); say('bye')", "close_stdin", 0, ""),
        ("signal.signal(signal.SIGINT, lambda *_: sys.exit(7)); say('up')" + WAIT, "SIGINT", 7, ""),
        ("signal.signal(signal.SIGINT, signal.SIG_IGN); say('up')" + WAIT, "SIGTERM", None, "SIGTERM"),
    ],
)
def test_the_ladder_is_climbed_as_far_as_needed(
    folder: Path, source: str, step: str, code: int | None, ended_by: str
) -> None:
    keep(folder, launch(source))
    wait_for(lambda: line_count(folder), "the agent's word")
    with attached(folder) as bridge:
        ladder = [[act, 10.0 if act == step else seconds] for act, seconds in QUICK]
        assert bridge.call("stop", ladder=ladder)["step"] == step
        end = bridge.end()
    assert (end["code"], end["signal"], end["stopped"]) == (code, ended_by, True)


def test_stops_join_and_a_ladder_that_does_not_reach_the_top_ends_the_agent_too(folder: Path) -> None:
    keep(folder, launch(DEAF + "say('up')" + WAIT))
    wait_for(lambda: line_count(folder), "the agent's word")
    with attached(folder) as bridge, Caller(folder) as other:
        first = bridge.send("stop", ladder=[["SIGTERM", 0.1], ["a step of the future", 5.0]])
        assert other.call("stop")["state"] == bridge.reply(first)["state"] == "ended"
        assert bridge.end()["signal"] == "SIGKILL"
        assert bridge.call("stop")["state"] == "ended"


def test_what_an_agent_that_ends_by_itself_has_left_is_listed_and_lives(folder: Path) -> None:
    keep(folder, launch("say(start('sleep', '60', start_new_session=True))"))
    pid = first_pid(folder)
    with attached(folder) as bridge:
        end = bridge.end()
        assert bridge.call("stop")["state"] == "ended"
    assert (end["code"], end["stopped"], end["note"]) == (0, False, "")
    assert [(row[0], row[2]) for row in state(folder)["left"]] == [(pid, "sleep")]
    assert lives(pid)


def test_an_agent_that_closes_its_output_and_stays_is_ended(folder: Path) -> None:
    keep(folder, launch("say('bye'); os.close(1); os.close(2); sys.stdin.read()"))
    with attached(folder) as bridge:
        end = bridge.end()
    assert (end["code"], end["stopped"]) == (0, False)
    assert end["note"] == "it had closed its output; it ended at close_stdin"


def test_without_a_bridge_it_climbs_the_ladder_by_itself(folder: Path) -> None:
    keep(folder, launch(DEAF + "say('up')" + WAIT), orphan=0.3, retention=0.2)
    wait_for(lambda: standing(folder) == "ended", "the keeper's end")
    end = state(folder)["exit"]
    assert end["signal"] == "SIGKILL"
    assert end["note"].startswith("no bridge came for ")
    assert not (folder / "sock").exists()


def test_a_bridge_holds_that_off_while_it_is_attached(folder: Path) -> None:
    keep(folder, launch("time.sleep(0.6); say('late')\n" + ECHO), orphan=0.3)
    with attached(folder) as bridge:
        bridge.note("grown", offset=5)
        assert bridge.write((0, 1, 0), b"still here\n") == "written"
    wait_for(lambda: "exit" in state(folder), "the end")
    assert output(folder) == b"late\nstill here\n"


def test_it_goes_when_it_is_released_and_not_before_the_agent(folder: Path) -> None:
    keep(folder, launch(ECHO))
    with attached(folder) as bridge:
        assert bridge.call("release")["state"] == "released"
        assert bridge.write((0, 1, 0), b"on\n") == "written"
        bridge.call("close_stdin", within=5.0)
        bridge.end()
        assert bridge.hung_up()
    wait_for(lambda: standing(folder) == "ended", "the keeper's end")


def test_told_to_end_it_ends_the_agent_and_says_so(folder: Path) -> None:
    keep(folder, launch("say('up')" + WAIT))
    wait_for(lambda: line_count(folder), "the agent's word")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # the first two are for others
        os.kill(keeper_pid(folder), number)
    wait_for(lambda: standing(folder) == "ended", "the keeper's end")
    assert state(folder)["exit"]["note"] == "its keeper was told to end; it ended at SIGINT"


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends the agent on Linux only")
def test_an_agent_does_not_outlive_a_killed_keeper(folder: Path) -> None:
    agent = keep(folder, launch(DEAF + "say('up')" + WAIT))["agent"]
    kill_keeper(folder)
    wait_for(lambda: not lives(agent), "the agent's end")
    assert standing(folder) == "gone"


def test_it_needs_no_file_of_its_own_once_it_runs(folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "program" / "keeper.py"
    program.parent.mkdir()
    shutil.copy(keeper.__file__, program)
    command = (sys.executable, "-I", "-S", "-X", "importtime", str(program))  # which tells each import on stderr
    keep(folder, launch(DEAF + "say(start('sleep', '60', start_new_session=True))" + WAIT), command=command)
    wait_for(lambda: line_count(folder), "the agent's word")
    shutil.rmtree(program.parent)
    with attached(folder) as bridge:
        assert bridge.write((0, 1, 0), b"hello\n") == "written"
        with Caller(folder) as rude:
            rude.send_raw(b"rubbish\n")
            assert rude.hung_up()
        assert bridge.call("stop")["state"] == "ended"
        bridge.end()
    os.kill(keeper_pid(folder), signal.SIGTERM)
    wait_for(lambda: standing(folder) == "ended", "the keeper's end")
    assert (folder / "keeper.log").read_text() == ""


# ---------------------------------------------------------------------------------------------------- the process table


@pytest.mark.skipif(shutil.which("ps") is None or not Path("/proc/self/stat").exists(), reason="needs both")
def test_ps_tells_what_proc_tells() -> None:
    mark = f"{keeper.PROCESS_VARIABLE}=of-this-test"
    child = subprocess.Popen(["sleep", "60"], env={"A": "b", keeper.PROCESS_VARIABLE: "of-this-test"})
    try:
        wait_for(lambda: keeper.carriers("of-this-test", [child.pid]), "the child's environment")
        told, known = keeper._table_of_ps(), keeper.table()
        assert (told[child.pid].parent, told[child.pid].name) == (os.getpid(), "sleep")
        assert told[child.pid].session == known[child.pid].session
        assert keeper._carriers_of_ps(mark.encode()) == {child.pid}
        assert keeper.carriers("of-this-test", known) == {child.pid}
    finally:
        child.kill()
        child.wait()


def test_the_lineage_of_this_process_and_of_none() -> None:
    line = keeper.lineage(os.getpid())
    assert line is not None
    assert line[:2] == [os.getpid(), os.getppid()]
    child = subprocess.Popen(["true"])
    child.wait()
    assert keeper.lineage(child.pid) is None
