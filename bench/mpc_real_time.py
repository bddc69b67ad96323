"""MPC by the clock: the plant in a process and on a core of its own, shared memory between, a new
plan every tick of a millisecond.

Before and after that, the same with a controller that takes as long and computes nothing: what it
misses, the machine does not allow.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import machine
import numpy as np
from mpc_cases import NEAR, SLOW, TICK, Course, Tracking, eight, tip

import rigidgrad as rg

NX, NU = 14, 7
SETTLING = 1.5  # seconds before the goal moves
TRIAL = 1000  # steps, to know how long they take
WAKING = 0.2e-3  # seconds by which sleeping may wake late
PAUSE = 0.1e-3  # seconds by which who only waits is late only if the machine did something else
IDLE = 0.999  # of the deadlines; a machine that does not allow that many is not idle
PRIORITY = 50


class Board:
    """What both processes see. A state or control counts once its number says so: it is written
    last.
    """

    SIZE = 64

    def __init__(self, memory: Any):
        numbers = np.frombuffer(memory, float)
        self.state, self.control, self.stop = numbers[0:1], numbers[1:2], numbers[2:3]
        self.published = numbers[3:4]  # by time.perf_counter, which all processes share
        self.x, self.u = numbers[8 : 8 + NX], numbers[32 : 32 + NU]


class Empty:
    """Takes as long as a controller, without computing. Seconds in which the machine does something
    else are no work, as they are none to a controller.
    """

    def __init__(self, step_us: float, prepare_us: float):
        self.counts: dict[str, int] = {}
        self._step, self._prepare = 1e-6 * step_us, 1e-6 * prepare_us
        self._u = np.zeros(NU)

    def step(self, x: np.ndarray, t: float, measured_at: float) -> np.ndarray:
        self._spin(self._step)
        return self._u

    def prepare(self, t: float) -> None:
        self._spin(self._prepare)

    def _spin(self, seconds: float) -> None:
        last, worked = time.perf_counter(), 0.0
        while worked < seconds:
            moment = time.perf_counter()
            if moment - last < PAUSE:
                worked += moment - last
            last = moment


def measure(steps: int, core: int, priority: bool) -> dict[str, Any]:
    """Our controller, and what the machine allows."""
    if (os.cpu_count() or 1) < 2:
        raise SystemExit("a plant in another process needs a core of its own: this machine has one")
    load = os.getloadavg()[0]
    machine.pin_to(core)
    trial, _ = drive(controller(), TRIAL, core, priority)
    empty = Empty(trial["step_us"]["p50"], trial["prepare_us"]["p50"])
    before, _ = drive(empty, steps // 2, core, priority)
    found, states = drive(controller(), steps, core, priority)
    after, _ = drive(empty, steps // 2, core, priority)
    idle = min(before["deadlines_met"], after["deadlines_met"]) >= IDLE
    fields = {
        "period_ms": 1e3 * TICK,
        "load": load,
        "machine_idle": idle,
        "machine_allows": {"before": before, "after": after},
    }
    return fields | found | tracking(states)


def drive(mpc: Any, steps: int, core: int, priority: bool) -> tuple[dict[str, Any], np.ndarray]:
    """`steps` ticks after the arm has settled; the plant takes the control that is there when a
    tick begins. What was measured, and the plant's states.
    """
    context = multiprocessing.get_context("spawn")
    memory = context.RawArray("d", Board.SIZE)
    board = Board(memory)
    board.state[0] = board.control[0] = -1
    settling = round(SETTLING / TICK)
    results, sender = context.Pipe(duplex=False)
    other = next(c for c in range(os.cpu_count() or 1) if c != core)
    plant = context.Process(
        target=drive_plant, args=(memory, settling + steps, other, priority, sender)
    )
    plant.start()
    try:
        raised = raise_priority() if priority else False
        before = stolen()
        found = control(board, mpc, settling + steps, plant, spin=raised and unthrottled())
        taken = stolen() - before
        lower_priority()
        plants = results.recv()
    finally:
        board.stop[0] = 1
        plant.join(10)
    if "failed" in plants:
        raise SystemExit(
            f"the arm was lost, with {plants['late'].sum()} deadlines missed: {plants['failed']}."
            " Is the machine idle?"
        )
    counts = {name: count for name, count in mpc.counts.items() if count}
    fields = {
        "steps": steps,
        "real_time_priority": raised,
        "spinning": raised and unthrottled(),
        "counts": counts,
        "stolen_ms": 1e3 * taken,
    }
    return fields | summary(found, plants, settling), plants["states"]


def controller() -> rg.MPC:
    """A control answers the state of one tick and acts in the next: the state is brought forward by
    as much.
    """
    task, course = Tracking(limits=True), Course()
    mpc = rg.MPC(task.problem(), rg.PDDP(iterations=1), period=TICK, target=course, log=1000)
    x, t = np.zeros(NX), 0.0
    for _ in range(300):  # everything compiled, all pages touched
        t += TICK
        mpc.step(x, t, t - TICK)
        mpc.prepare(t + TICK)
    mpc.reset()
    course.since = SETTLING
    return mpc


def control(board: Board, mpc: Any, steps: int, plant: Any, spin: bool) -> dict[str, np.ndarray]:
    """Answers every state, then prepares for the next.

    Seconds: of the computation, by the clock and of CPU time, from the publication of the state to
    that of the control, of the preparation, and by how much a state that was waited for was seen
    late.
    """
    working, cpu, answered, preparing, late = (np.zeros(steps) for _ in range(5))
    seen = np.zeros(steps, bool)
    x, now = np.empty(NX), time.perf_counter
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        last = -1
        while last < steps - 1:
            waited = board.state[0] == last
            if not spin and waited and last >= 0:
                sleep_until(board.published[0] + TICK)
            while board.state[0] == last and not board.stop[0]:
                if last < 0 and not plant.is_alive():
                    raise SystemExit("the plant's process has ended")
            if board.stop[0]:
                break
            began, used = now(), time.thread_time()
            k, published = int(board.state[0]), float(board.published[0])
            x[:] = board.x
            u = mpc.step(x, (k + 1) * TICK, k * TICK)
            board.u[:] = u
            board.control[0] = k
            done = now()
            working[k], cpu[k], answered[k], seen[k] = (
                done - began,
                time.thread_time() - used,
                done - published,
                True,
            )
            late[k] = began - published if waited else 0.0
            if board.state[0] == k:  # else there is no time for it
                mpc.prepare((k + 2) * TICK)
                preparing[k] = now() - done
            last = k
    finally:
        gc.enable()
        gc.unfreeze()
    return {
        "working": working,
        "cpu": cpu,
        "answered": answered,
        "preparing": preparing,
        "late": late,
        "seen": seen,
    }


def drive_plant(memory: Any, steps: int, core: int, priority: bool, sender: Any) -> None:
    """Publishes a state every tick and holds, until the next, the control that answers the one
    before.
    """
    machine.pin_to(core)
    board = Board(memory)
    plant = Tracking(limits=True).plant()
    spin = priority and raise_priority() and unthrottled()
    u = np.zeros(NU)
    late, states, begins = np.zeros(steps, bool), np.empty((steps, NX)), np.empty(steps)
    gc.disable()
    now = time.perf_counter
    begin = now() + 0.05
    for k in range(steps):
        if not spin:
            sleep_until(begin + k * TICK)
        while now() < begin + k * TICK:
            pass
        if k:  # the deadline of the control that answers the last state
            if board.control[0] == k - 1:
                u[:] = board.u
            else:
                late[k - 1] = True
        begins[k] = now() - (begin + k * TICK)
        board.x[:] = plant.x
        board.published[0] = now()
        board.state[0] = k
        try:
            plant.advance(u)
        except rg.errors.RigidgradError as error:
            board.stop[0] = 1
            sender.send({"late": late[:k], "failed": str(error)})
            return
        states[k] = plant.x
    sender.send({"late": late, "states": states, "begins": begins})


def sleep_until(moment: float) -> None:
    """Until shortly before it, since sleeping wakes late. Who only spins is stopped by the system
    for a while, or stops others.
    """
    ahead = moment - time.perf_counter()
    if ahead > WAKING:
        time.sleep(ahead - WAKING)


def stolen() -> float:
    """Seconds in which this virtual machine's processors, all together, wanted to run and were not
    let by their host; 0 where that is not known.
    """
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        return int(fields[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


def unthrottled() -> bool:
    """Whether processes of real-time priority may run without a pause (`sysctl -w
    kernel.sched_rt_runtime_us=-1`); Linux else stops them for 50 ms of a second.
    """
    try:
        return int(Path("/proc/sys/kernel/sched_rt_runtime_us").read_text()) == -1
    except (OSError, ValueError):
        return False


def summary(found: dict[str, np.ndarray], plants: dict[str, Any], settling: int) -> dict[str, Any]:
    own = slice(settling, None)
    found = {name: values[own] for name, values in found.items()}
    late, begins, seen = plants["late"][own], plants["begins"][own], found["seen"]
    # the machine stood still, if the plant, which only waits, was late for this tick or for the one
    # that ends it, or the controller for a state that it only waited for
    paused = (begins > PAUSE) | (np.r_[begins[1:], 0.0] > PAUSE) | (found["late"] > PAUSE)
    return {
        "deadlines_met": 1.0 - float(late.mean()),
        "deadlines_missed": int(late.sum()),
        "ticks_with_a_pause": int(paused.sum()),
        "deadlines_met_without_a_pause": 1.0 - float(late[~paused].mean()),
        "states_skipped": int(len(seen) - seen.sum()),
        "step_us": percentiles(1e6 * found["working"][seen]),
        "step_cpu_us": percentiles(1e6 * found["cpu"][seen]),
        "answer_us": percentiles(1e6 * found["answered"][seen]),
        "prepare_us": percentiles(1e6 * found["preparing"][found["preparing"] > 0.0]),
        "plant_late_us": percentiles(1e6 * begins),
    }


def tracking(states: np.ndarray) -> dict[str, Any]:
    """Whether the arm had settled when the goal began to move, and how far it was from it then,
    mm.
    """
    robot, settling = Tracking().robot, round(SETTLING / TICK)
    times = TICK * (np.arange(len(states)) + 1)
    away = 1e3 * np.linalg.norm(
        tip(robot, states) - eight(np.maximum(times - SETTLING, 0.0)), axis=-1
    )
    settled = bool(
        away[settling - 1] < 1e3 * NEAR and np.linalg.norm(states[settling - 1, 7:]) < SLOW
    )
    return {
        "settled": settled,
        "mean_mm": float(away[settling:].mean()),
        "max_mm": float(away[settling:].max()),
    }


def percentiles(values: np.ndarray) -> dict[str, float]:
    p50, p99, p999 = np.quantile(values, (0.5, 0.99, 0.999))
    return {
        "p50": float(p50),
        "p99": float(p99),
        "p99.9": float(p999),
        "worst": float(values.max()),
    }


def raise_priority() -> bool:
    """Real-time priority, where the system lets us."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
        return True
    except (AttributeError, OSError):
        return False


def lower_priority() -> None:
    with contextlib.suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def table(result: dict[str, Any]) -> list[list[str]]:
    runs = (result, *result["machine_allows"].values())
    counted = {"ticks with a pause": "ticks_with_a_pause", "states skipped": "states_skipped"}
    timed = {
        "step, µs": "step_us",
        "its CPU time, µs": "step_cpu_us",
        "from state to control, µs": "answer_us",
        "preparing the next, µs": "prepare_us",
        "the plant's own lateness, µs": "plant_late_us",
    }
    return [
        [
            "deadlines met",
            *(f"{100 * run['deadlines_met']:.2f}% of {run['steps']}" for run in runs),
        ],
        *([label, *(str(run[name]) for run in runs)] for label, name in counted.items()),
        [
            "met in ticks without one",
            *(f"{100 * run['deadlines_met_without_a_pause']:.2f}%" for run in runs),
        ],
        ["taken by the virtual machine's host", *(f"{run['stolen_ms']:.0f} ms" for run in runs)],
        *(
            [
                label,
                *(
                    ", ".join(f"{key} {value:.0f}" for key, value in run[name].items())
                    for run in runs
                ),
            ]
            for label, name in timed.items()
        ),
        [
            "tracking error, mean (max)",
            f"{result['mean_mm']:.2f} ({result['max_mm']:.2f}) mm",
            "",
            "",
        ],
        [
            f"the machine allows {100 * IDLE:.1f}%",
            "yes" if result["machine_idle"] else "no: it is not idle",
            "",
            "",
        ],
    ]
