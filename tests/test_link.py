"""Shared memory between processes: no message is lost that was to be kept, and none is torn."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from test_tasks import file  # noqa: F401

import rigidgrad as rg
from rigidgrad.cli import main
from rigidgrad.errors import InputError, RigidgradError, UnknownNameError
from rigidgrad.link import channel, layout

ROOT = Path(__file__).parents[1]
HEADER = Path(rg.link.__file__).parent / rg.link.HEADER
SECOND_LOOK = "return __atomic_load_n(rg_link_word(slot, 0), __ATOMIC_RELAXED) == 2 * number;"

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX shared memory")


@pytest.fixture
def name(tmp_path):
    """A link of this test alone."""
    return str(tmp_path / "memory")


def built(folder: Path, header: str, *flags: str) -> Path:
    """The C program that is one side of a link."""
    compiler = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (folder / rg.link.HEADER).write_text(header)
    source = folder / "link.c"
    source.write_text((ROOT / "bench" / "peers" / "link.c").read_text())
    warnings = ("-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Wshadow", "-Werror")
    subprocess.run(
        [compiler, "-std=c99", "-O2", *warnings, *flags, str(source), "-o", str(folder / "link")],
        check=True,
    )
    return folder / "link"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return built(tmp_path_factory.mktemp("link"), rg.link.header())


def start(program: Path, *arguments: object) -> subprocess.Popen:
    return subprocess.Popen([str(program), *map(str, arguments)], stdout=subprocess.PIPE, text=True)


def result(process: subprocess.Popen) -> dict:
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return json.loads(said)


def is_whole(message: rg.link.Message) -> bool:
    """Whether values are what the other side sends with that number: 65536 n + i."""
    return bool((message.values == 65536 * message.number + np.arange(len(message.values))).all())


def values_of(number: int, width: int) -> np.ndarray:
    return 65536.0 * number + np.arange(width)


# --- exchanges ------------------------------------------------------------------------------------


def test_the_header_and_python_have_the_same_layout():
    text = rg.link.header()

    def defined(word: str) -> int:
        found = re.search(rf"#define RG_LINK_{word} (?:U?INT64_C\()?(0x\w+|\d+)", text)
        return int(found[1], 0)

    for word in ("MAGIC", "VERSION", "HEADER", "TAIL", "SIGNAL", "ASLEEP", "SLOTS", "VALUES"):
        assert defined(word) == getattr(layout, word), word
    assert defined("MOST") == layout.MOST and defined("RETRIES") == layout.RETRIES
    roles = re.search(r"enum \{ RG_LINK_ROBOT = 0, RG_LINK_CONTROLLER = 1, RG_LINK_OBSERVER", text)
    assert roles and layout.ROLES == {"robot": 0, "controller": 1, "observer": 2}


def test_of_300_000_exchanges_of_two_c_processes_under_load_none_is_lost_or_torn(program, name):
    load = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        robot = start(program, "stream", name, 300_000)
        controller = result(start(program, "answer", name, 300_000))
        for found in (result(robot), controller):
            assert found["done"] == 300_000
            assert found["torn"] == found["out_of_order"] == found["skipped"] == 0
    finally:
        load.kill()
        load.wait()


def test_of_100_000_exchanges_with_a_c_process_python_loses_none(program, name):
    robot = start(program, "stream", name, 100_000)
    with rg.link.Link(name, "controller", states=14, controls=14) as link:
        got = 0
        while got < 100_000:
            message = link.receive(5.0, order="next")
            got += 1
            assert message.number == got and message.skipped == 0 and is_whole(message)
            link.send(values_of(got, 14), wait=5.0)
        found = result(robot)
    assert found["done"] == 100_000 and found["torn"] == found["out_of_order"] == 0


def test_a_robot_in_python_and_a_controller_in_c(program, name):
    controller = start(program, "serve", name, 0, 5)
    with rg.link.Link(name, "robot", states=5, controls=5, slots=64) as link:
        while not link.connected:
            time.sleep(0.01)
        for k in range(2000):
            reply = link.exchange(values_of(k + 1, 5), 0.001 * k, timeout=10.0)
            assert reply.answers == k + 1 and is_whole(reply)
            assert reply.time == 0.001 * k
    found = result(controller)
    assert found["torn"] == 0 and found["done"] + found["skipped"] == 2000


@pytest.mark.parametrize("slots", [2, 64])
def test_a_writer_that_waits_for_nobody_tears_no_read(program, name, slots):
    """States of 64 numbers as fast as can be, over those that are being read."""
    writer = start(program, "flood", name, 1, 64, slots)
    shape = {"states": 64, "controls": 64, "slots": slots}
    last = 0
    with rg.link.Link(name, "controller", **shape) as link:
        for k in range(10_000):
            message = link.receive(10.0, order="next" if k % 2 else "newest")
            assert message.number == last + 1 + message.skipped and is_whole(message)
            last = message.number
    assert result(writer)["done"] >= last


def test_without_the_second_look_at_the_counter_reads_are_torn(tmp_path, name):
    """What the tests above would see if the algorithm were wrong."""
    if len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else [0]) < 2:
        pytest.skip("needs two CPUs")
    text = rg.link.header()
    assert SECOND_LOOK in text
    broken = built(tmp_path, text.replace(SECOND_LOOK, "return 1;"))
    for _ in range(10):
        Path(name).unlink(missing_ok=True)
        writer = start(broken, "flood", name, 1, 64, 2)
        torn = result(start(broken, "watch", name, 50_000, 64, 2))["torn"]
        result(writer)
        if torn:
            return
    pytest.fail("none was torn")


def test_threads_of_both_sides_have_no_data_race(tmp_path, name):
    """ThreadSanitizer finds none: every shared word is atomic."""
    compiler = shutil.which("clang")
    if compiler is None:
        pytest.skip("no clang")
    (tmp_path / rg.link.HEADER).write_text(rg.link.header())
    source = tmp_path / "race.c"
    source.write_text(
        """
        #include "rigidgrad_link.h"
        #include <pthread.h>
        static rg_link robot, controller;
        static void *write_states(void *unused) {
          double x[16];
          (void)unused;
          for (int k = 0; k < 50000; ++k) {
            for (int i = 0; i < 16; ++i) x[i] = k;
            rg_link_send(&robot, k, x);
          }
          return NULL;
        }
        int main(int argc, char **argv) {
          pthread_t thread;
          rg_message message;
          double x[16];
          int wrong = argc < 2;
          if (rg_link_open(&robot, argv[1], RG_LINK_ROBOT, 16, 16, 2)) return 2;
          controller = robot; /* the same mapping: the sanitizer knows addresses */
          controller.role = RG_LINK_CONTROLLER;
          controller.in = robot.out;
          controller.out = robot.in;
          pthread_create(&thread, NULL, write_states, NULL);
          while (controller.in.seen < 50000) {
            if (rg_link_newest(&controller, &message, x) != 1) continue;
            for (int i = 0; i < 16; ++i) wrong += x[i] != (double)message.number - 1;
          }
          pthread_join(thread, NULL);
          rg_link_close(&robot);
          return wrong != 0;
        }
        """
    )
    done = subprocess.run(
        [
            compiler,
            "-std=gnu99",
            "-O1",
            "-fsanitize=thread",
            str(source),
            "-o",
            str(tmp_path / "race"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("clang has no thread sanitizer here")
    ran = subprocess.run(
        [str(tmp_path / "race"), name], capture_output=True, text=True, timeout=60, check=False
    )
    if "unexpected memory mapping" in ran.stderr:
        pytest.skip("this kernel's addresses are not for the thread sanitizer")
    assert ran.returncode == 0, ran.stderr


# --- the order of loads and stores ----------------------------------------------------------------

WRITER = ("odd", "a", "b", "even", "head")
READER = ("before", "a", "b", "after")
# pairs of which the first is seen by all before the second
STORED = {
    *itertools.product(("odd",), ("a", "b")),  # the release fence
    *itertools.product(("odd", "a", "b"), ("even",)),  # a store with release
    *itertools.product(("odd", "a", "b", "even"), ("head",)),  # likewise
}
LOADED = {
    *itertools.product(("before",), ("a", "b")),  # a load with acquire
    *itertools.product(("a", "b"), ("after",)),  # the acquire fence
    ("before", "after"),  # one word is coherent
}


def orders(names: tuple[str, ...], before: set[tuple[str, str]]):
    """All orders in which memory may see accesses, those of one word in the program's."""
    for order in itertools.permutations(names):
        place = {name: k for k, name in enumerate(order)}
        if all(place[x] < place[y] for x, y in before if x in place and y in place):
            yield order


def torn_reads(stored: set[tuple[str, str]], loaded: set[tuple[str, str]]) -> int:
    """How many accepted reads of message 1 are torn while message 2 is written over it, in all
    orders that memory may choose and all interleavings.
    """
    stored = stored | {("odd", "even")}  # one word
    torn = 0
    for writes in orders(WRITER, stored):
        for reads in orders(READER, loaded):
            for places in itertools.combinations(range(9), 5):
                memory = {"counter": 2, "a": 1, "b": 1}
                seen = {}
                write, read = iter(writes), iter(reads)
                for k in range(9):
                    if k in places:
                        what = next(write)
                        if what in ("odd", "even"):
                            memory["counter"] = 3 if what == "odd" else 4
                        elif what != "head":
                            memory[what] = 2
                    else:
                        what = next(read)
                        seen[what] = memory["counter" if what in ("before", "after") else what]
                if seen["before"] == seen["after"] == 2:
                    torn += (seen["a"], seen["b"]) != (1, 1)
                elif seen["before"] == seen["after"] == 4:
                    torn += (seen["a"], seen["b"]) != (2, 2)
    return torn


def test_no_order_that_the_fences_allow_tears_a_read():
    assert torn_reads(STORED, LOADED) == 0


@pytest.mark.parametrize(
    ("stored", "loaded"),
    [
        ({("odd", "a"), ("odd", "b")}, set()),
        ({("a", "even"), ("b", "even")}, set()),
        (set(), {("before", "a"), ("before", "b")}),
        (set(), {("a", "after"), ("b", "after")}),
    ],
    ids=["fence release", "store release", "load acquire", "fence acquire"],
)
def test_without_one_of_them_some_order_does(stored, loaded):
    assert torn_reads(STORED - stored, LOADED - loaded) > 0


@pytest.mark.parametrize("order", ["newest", "next"])
def test_a_writer_that_dies_at_any_point_leaves_whole_messages(name, order):
    """A writer's stores up to any point, by hand; then a reader, and another writer."""
    shape = layout.Shape(3, 2, 2)
    for point in range(7):
        Path(name).unlink(missing_ok=True)
        robot = rg.link.Link(name, "robot", states=3, controls=2, slots=2)
        controller = rg.link.Link(name, "controller", wait=1.0)
        for number in (1, 2):
            robot.send(values_of(number, 3))
        at = shape.offsets[0]
        slot = at + layout.SLOTS + (3 & 1) * layout.stride(3)
        stores = [
            (slot, 5),
            *(
                (slot + layout.VALUES + 8 * i, struct.unpack("q", struct.pack("d", value))[0])
                for i, value in enumerate(values_of(3, 3))
            ),
            (slot, 6),
            (at + layout.HEAD, 3),
        ]
        for offset, word in stores[:point]:
            robot._memory.map[offset : offset + 8] = struct.pack("q", word)
        first = controller.receive(order=order)
        assert is_whole(first)
        # message 1 lay in the slot that is being overwritten
        if order == "newest":
            expected = 3 if point == 6 else 2
        else:
            expected = 1 if point == 0 else 2
        assert first.number == expected and first.skipped == expected - 1
        robot.close()
        robot = rg.link.Link(name, "robot")  # another writer goes on
        number = robot.send(values_of(4 if point == 6 else 3, 3))
        assert number == (4 if point == 6 else 3)
        found = controller.receive(order="newest")
        assert found.number == number and is_whole(found)
        robot.close()
        controller.close()


# --- roles and times ------------------------------------------------------------------------------


def test_one_process_at_a_time_has_a_role_and_loses_it_with_its_life(name):
    code = (
        "import sys, time, rigidgrad as rg; link = rg.link.Link(sys.argv[1], 'robot', states=2,"
        " controls=1); print(link.send([1, 2]), flush=True); time.sleep(100)"
    )
    other = subprocess.Popen([sys.executable, "-c", code, name], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "1\n"
        with pytest.raises(InputError, match="another process is the robot"):
            rg.link.Link(name, "robot", states=2, controls=1)
        with rg.link.Link(name, "controller") as link:
            assert link.connected
            assert link.receive().values.tolist() == [1, 2]
            other.send_signal(signal.SIGKILL)
            other.wait()
            assert not link.connected
            with rg.link.Link(name, "robot") as robot:
                assert link.connected and robot.connected
                assert robot.send([3, 4]) == 2
                assert link.receive().number == 2
    finally:
        other.kill()
        other.wait()


def test_c_respects_roles_and_shapes_of_python(program, name):
    with rg.link.Link(name, "robot", states=14, controls=14):
        for arguments, said in {
            ("stream", name, 1): "another process has this role",
            ("answer", name, 1, 13): "other states, controls or slots",
        }.items():
            done = subprocess.run(
                [str(program), *map(str, arguments)], capture_output=True, text=True, check=False
            )
            assert done.returncode == 1 and said in done.stderr


def test_what_a_process_sent_that_has_gone_is_not_received(name):
    with rg.link.Link(name, "robot", states=2, controls=2) as robot:
        robot.send([1, 1])
    with rg.link.Link(name, "controller", wait=1.0) as controller:
        assert controller.receive() is None
        with rg.link.Link(name, "robot") as robot:
            robot.send([2, 2])
            assert controller.receive().values.tolist() == [2, 2]
    # but a robot that is there, and has sent before the controller came, is heard
    with rg.link.Link(name, "robot") as robot:
        robot.send([3, 3])
        with rg.link.Link(name, "controller") as controller:
            assert controller.receive().values.tolist() == [3, 3]


def test_newest_and_next_say_what_they_skip(name):
    with (
        rg.link.Link(name, "robot", states=1, controls=1, slots=4) as robot,
        rg.link.Link(name, "controller") as controller,
        rg.link.Link(name, "observer") as observer,
    ):
        assert controller.receive() is None and observer.observe("states") is None
        for k in range(3):
            assert robot.send([k], time=0.1 * k) == k + 1
        first = controller.receive(order="next")
        assert (first.number, first.time, first.skipped) == (1, 0.0, 0)
        newest = controller.receive()
        assert (newest.number, newest.values[0], newest.skipped) == (3, 2.0, 1)
        assert controller.receive() is None
        for k in range(10):
            robot.send([k])
        left = controller.receive(order="next")
        assert left.number == 10 and left.skipped == 6  # the oldest of the four that are left
        assert observer.observe("states").number == 13 and observer.observe("controls") is None
        controller.send([7.0])
        answer = robot.receive()
        assert answer.answers == 10
        assert observer.observe("controls").values[0] == 7.0
        assert observer.connected


def test_waiting_keeps_what_is_not_received(name):
    with (
        rg.link.Link(name, "robot", states=1, controls=1, slots=4) as robot,
        rg.link.Link(name, "controller") as controller,
    ):
        for k in range(4):
            robot.send([k], wait=0.0)
        with pytest.raises(RigidgradError, match=r"the ring of .* is full"):
            robot.send([4], wait=0.01)
        assert controller.receive(order="next").values[0] == 0
        robot.send([4], wait=0.0)
        rest = [controller.receive(order="next").values[0] for _ in range(4)]
        assert rest == [1, 2, 3, 4]


@pytest.mark.parametrize("futex", [True, False])
def test_who_sleeps_is_woken(name, monkeypatch, futex):
    if futex and not channel.has_futex():
        pytest.skip("this system has no futexes")
    monkeypatch.setattr(channel, "_PIECE", 100.0)
    if not futex:
        monkeypatch.setattr(channel, "has_futex", lambda: False)
    with (
        rg.link.Link(name, "robot", states=1, controls=1) as robot,
        rg.link.Link(name, "controller", spin=0.0) as controller,
    ):
        for k in range(20):
            timer = threading.Timer(0.01, robot.send, ([k],))
            timer.start()
            # longer than a test may take: what is not woken does not pass
            assert controller.receive(1000.0).values[0] == k
            timer.join()
        assert controller.receive(0.01) is None


def test_an_exchange_takes_no_answer_to_an_older_state(name):
    with (
        rg.link.Link(name, "robot", states=1, controls=1) as robot,
        rg.link.Link(name, "controller") as controller,
    ):
        robot.send([1.0])
        controller.receive()
        controller.send([10.0])  # answers 1
        assert robot.exchange([2.0], timeout=0.01) is None
        controller.receive()
        controller.send([20.0])  # answers 2, too late
        timer = threading.Timer(0.05, lambda: (controller.receive(), controller.send([30.0])))
        timer.start()
        answer = robot.exchange([3.0], timeout=30.0)
        timer.join()
        assert answer.values[0] == 30.0 and answer.answers == 3


# --- a controller at work -------------------------------------------------------------------------


def test_a_function_serves_a_robot_until_it_goes(name):
    def robot():
        with rg.link.Link(name, "robot", states=2, controls=1) as link:
            for k in range(200):
                x = np.array([np.cos(k), np.sin(k)])
                reply = link.exchange(x, 0.001 * k, timeout=30.0)
                assert reply.values[0] == x[0] + 2 * x[1]

    with rg.link.Link(name, "controller", states=2, controls=1) as link:
        thread = threading.Thread(target=robot)
        thread.start()
        served = rg.link.serve(lambda x, t: x[:1] + 2 * x[1:], link, deadline=60.0)
        thread.join()
    assert served.answered == 200 and served.skipped == 0 and served.late == 0
    assert len(served.seconds) == 200 and served.percentile(50) > 0


def test_mpc_swings_a_pendulum_that_another_process_simulates(name):
    """The controls that come over the link are those of the same controller beside its plant."""
    robot = rg.load("double_pendulum")
    x0 = np.array([0.4, -0.3, 0.0, 0.0])

    def controller():
        problem = rg.Problem(
            robot,
            start=x0,
            steps=15,
            dt=0.02,
            costs=[rg.costs.State(np.zeros(4), weight=1.0, final=10.0), rg.costs.Effort(1e-3)],
        )
        return rg.MPC(problem, rg.PDDP(iterations=2), period=0.01)

    def plant():
        return rg.plants.Simulator(robot, x0, dt=0.01, friction=None)

    beside, mpc = plant(), controller()
    for _ in range(30):
        beside.advance(mpc.step(beside.x, beside.time))
    apart = plant()

    def simulate():
        with rg.link.Link(name, "robot", states=4, controls=2) as link:
            for _ in range(30):
                apart.advance(link.exchange(apart.x, apart.time, timeout=60.0).values)

    with rg.link.Link(name, "controller", states=4, controls=2) as link:
        thread = threading.Thread(target=simulate)
        thread.start()
        mpc = controller()
        served = rg.link.serve(mpc.step, link)
        thread.join()
    assert served.answered == 30
    assert np.array_equal(apart.x, beside.x)


def test_the_command_serves_the_controller_of_a_task(file, name, capsys):  # noqa: F811
    data = {}

    def robot():
        system = rg.load("double_pendulum")
        with rg.link.Link(name, "robot", states=4, controls=2) as link:
            x = np.array([0.3, -0.2, 0.0, 0.0])
            for k in range(20):
                reply = link.exchange(x, 0.01 * k, timeout=60.0)
                x = x + 0.01 * np.r_[x[2:], system.aba(x[:2], x[2:], reply.values)]
            data["x"] = x

    thread = threading.Thread(target=robot)
    thread.start()
    assert main(["link", file, "--name", name, "--json"]) == 0
    thread.join()
    found = json.loads(capsys.readouterr().out)
    assert found["answered"] == 20 and found["skipped"] == 0 and found["states"] == 4
    assert np.abs(data["x"][2:]).max() > 1e-3
    assert main(["link", file, "--name", name, "--wait", "0.2"]) == 1  # no robot comes
    assert "0 states" in capsys.readouterr().out


def test_the_command_writes_the_header(tmp_path, capsys):
    assert main(["link", "--header", str(tmp_path / "include")]) == 0
    assert (tmp_path / "include" / rg.link.HEADER).read_text() == rg.link.header()
    capsys.readouterr()
    assert main(["link"]) == 2
    assert "needs a task file" in capsys.readouterr().err


# --- what is refused ------------------------------------------------------------------------------


def test_wrong_uses_say_what_is_right(name, tmp_path):
    link = rg.link.Link
    for wrong, said in {
        lambda: link(name, "boss", states=1, controls=1): "role",
        lambda: link(name, "robot", states=1): "come together",
        lambda: link(name, "robot", states=0, controls=1): "states is 0",
        lambda: link(name, "robot", states=1, controls=1, slots=3): "power of two",
        lambda: link(name, "robot"): "there is no link",
        lambda: link("a b", "robot", states=1, controls=1): "letters, digits",
        lambda: link(tmp_path, "robot", states=1, controls=1): "cannot be opened",
        lambda: link("/dev/null", "robot", states=1, controls=1): "not a regular file",
        lambda: link(tmp_path / "no" / "file", "robot", states=1, controls=1): "there is no link",
    }.items():
        with pytest.raises((InputError, UnknownNameError), match=said):
            wrong()
    with link(name, "robot", states=2, controls=1) as robot:
        for numbers in ([1.0], [1.0, 2.0, 3.0], 1.0):
            with pytest.raises(InputError, match="sends 2 numbers"):
                robot.send(numbers)
        with pytest.raises(InputError, match=r"not .*controls=3"):
            link(name, "controller", states=2, controls=3)
        with pytest.raises(UnknownNameError, match="newest"):
            robot.receive(order="latest")
        with pytest.raises(InputError, match="observer"):
            robot.observe("states")
        with link(name, "observer") as observer, pytest.raises(InputError, match="does not send"):
            observer.send([1.0, 2.0])
        with pytest.raises(InputError, match="as controller"):
            rg.link.serve(lambda x, t: x, robot)
    with pytest.raises(RigidgradError, match="is closed"):
        robot.send([1.0, 2.0])
    robot.close()
    assert rg.link.remove(name) and not rg.link.remove(name)


def test_a_link_in_place_of_a_file_is_not_followed(name, tmp_path):
    (tmp_path / "secret").write_bytes(b"\0" * 4096)
    Path(name).symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match="cannot be opened"):
        rg.link.Link(name, "robot", states=1, controls=1)


def test_damaged_memory_is_refused_or_read_as_messages_but_never_beyond_it(program, name):
    """Any word of the header or of the counters may be anything."""
    rng = np.random.default_rng(0)
    with rg.link.Link(name, "robot", states=3, controls=2, slots=4) as robot:
        for k in range(6):
            robot.send(values_of(k + 1, 3))
    sound = Path(name).read_bytes()
    counters = [128, 256, 384] + [512 + 64 * k for k in range(4)]
    refused, said = 0, set()
    for k in range(200):
        data = bytearray(sound)
        for offset in rng.choice([*range(0, 64, 8), *counters], 2):
            data[offset : offset + 8] = rng.bytes(8) if k % 2 else bytes(8)
        if k % 5 == 0:
            del data[int(rng.integers(1, len(data))) :]
        Path(name).write_bytes(data)
        try:
            with rg.link.Link(name, "observer") as observer:
                for what in ("states", "controls"):
                    observer.observe(what)
        except RigidgradError as error:
            refused += 1
            said.add(next(word for word in ("damaged", "no link", "made") if word in str(error)))
    assert refused > 100 and "damaged" in said
    Path(name).write_bytes(b"\x7fELF" * 100)
    done = subprocess.run(
        [str(program), "answer", name, "1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "damaged" in done.stderr
