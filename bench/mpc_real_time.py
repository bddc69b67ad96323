"""MPC by the clock: the plant in a process and on a core of its own, shared memory between, a new plan every tick of a millisecond."""

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
WAKING = 0.2e-3  # seconds by which sleeping may wake late
PAUSE = 0.1e-3  # seconds by which a tick begins late only if the machine did something else
PRIORITY = 50


class Board:
    """What both processes see. A state or control counts once its number says so: it is written last."""

    SIZE = 64

    def __init__(self, memory: Any):
        numbers = np.frombuffer(memory, float)
        self.state, self.control, self.stop = numbers[0:1], numbers[1:2], numbers[2:3]
        self.published = numbers[3:4]  # by time.perf_counter, which all processes share
        self.x, self.u = numbers[8 : 8 + NX], numbers[32 : 32 + NU]


def measure(steps: int, core: int, priority: bool) -> dict[str, Any]:
    """`steps` ticks after the arm has settled; the plant takes the control that is there when a tick begins."""
    if (os.cpu_count() or 1) < 2:
        raise SystemExit("a plant in another process needs a core of its own: this machine has one")
    context = multiprocessing.get_context("spawn")
    memory = context.RawArray("d", Board.SIZE)
    board = Board(memory)
    board.state[0] = board.control[0] = -1
    settling = round(SETTLING / TICK)
    results, sender = context.Pipe(duplex=False)
    other = next(c for c in range(os.cpu_count() or 1) if c != core)
    machine.pin_to(core)
    mpc = controller()
    plant = context.Process(target=drive_plant, args=(memory, settling + steps, settling, other, priority, sender))
    load = os.getloadavg()[0]
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
        machine.pin_to(None)
    if "failed" in plants:
        raise SystemExit(f"the arm was lost, with {plants['late'].sum()} deadlines missed: {plants['failed']}. Is the machine idle?")
    counts = {name: count for name, count in mpc.counts.items() if count}
    fields = {
        "steps": steps,
        "period_ms": 1e3 * TICK,
        "load": load,
        "real_time_priority": raised,
        "spinning": raised and unthrottled(),
        "counts": counts,
    }
    return fields | {"stolen_ms": 1e3 * taken} | summary(found, plants, settling)


def controller() -> rg.MPC:
    """A control answers the state of one tick and acts in the next: the state is brought forward by as much."""
    task, course = Tracking(limits=True), Course()
    mpc = rg.MPC(task.problem(), rg.PDDP(iterations=1), period=TICK, target=course, log=1000)
    x, t = np.zeros(NX), 0.0
    for _ in range(300):  # everything compiled, all pages touched
        t += TICK
        mpc.step(x, t, t - TICK)
    mpc.reset()
    course.since = SETTLING
    return mpc


def control(board: Board, mpc: rg.MPC, steps: int, plant: Any, spin: bool) -> dict[str, np.ndarray]:
    """Answers every state. Seconds: of the computation, by the clock and of CPU time, and from the publication of the state to that of the control."""
    working, cpu, answered, seen = np.zeros(steps), np.zeros(steps), np.full(steps, np.nan), np.zeros(steps, bool)
    x, now = np.empty(NX), time.perf_counter
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        last = -1
        while last < steps - 1:
            if not spin and board.state[0] == last >= 0:
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
            working[k], cpu[k], answered[k], seen[k] = done - began, time.thread_time() - used, done - published, True
            last = k
    finally:
        gc.enable()
        gc.unfreeze()
    return {"working": working, "cpu": cpu, "answered": answered, "seen": seen}


def drive_plant(memory: Any, steps: int, settling: int, core: int, priority: bool, sender: Any) -> None:
    """Publishes a state every tick and holds, until the next, the control that answers the one before."""
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
    """Until shortly before it, since sleeping wakes late. Who only spins is stopped by the system for a while, or stops others."""
    ahead = moment - time.perf_counter()
    if ahead > WAKING:
        time.sleep(ahead - WAKING)


def stolen() -> float:
    """Seconds in which this virtual machine's processors, all together, wanted to run and were not let by their host; 0 where that is not known."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        return int(fields[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


def unthrottled() -> bool:
    """Whether processes of real-time priority may run without a pause (`sysctl -w kernel.sched_rt_runtime_us=-1`); Linux else stops them for 50 ms of a second."""
    try:
        return int(Path("/proc/sys/kernel/sched_rt_runtime_us").read_text()) == -1
    except (OSError, ValueError):
        return False


def summary(found: dict[str, np.ndarray], plants: dict[str, Any], settling: int) -> dict[str, Any]:
    own = slice(settling, None)
    working, cpu, answered, seen = (found[name][own] for name in ("working", "cpu", "answered", "seen"))
    late, begins = plants["late"][own], plants["begins"][own]
    steps = len(seen)
    # the machine stood still, if the plant, which only waits, was late for this tick or for the one that ends it
    paused = (begins > PAUSE) | (np.r_[begins[1:], 0.0] > PAUSE)
    result = {
        "deadlines_met": 1.0 - float(late.mean()),
        "deadlines_missed": int(late.sum()),
        "ticks_with_the_plant_late": int(paused.sum()),
        "deadlines_met_in_other_ticks": 1.0 - float(late[~paused].mean()),
        "states_skipped": int(steps - seen.sum()),
        "step_us": percentiles(1e6 * working[seen]),
        "step_cpu_us": percentiles(1e6 * cpu[seen]),
        "answer_us": percentiles(1e6 * answered[seen]),
    }
    states, times = plants["states"][settling:], TICK * (np.arange(settling, settling + steps) + 1)
    away = 1e3 * np.linalg.norm(tip(Tracking().robot, states) - eight(np.maximum(times - SETTLING, 0.0)), axis=-1)
    before = plants["states"][settling - 1]
    settled = bool(np.linalg.norm(tip(Tracking().robot, before) - eight(0.0)) < NEAR and np.linalg.norm(before[7:]) < SLOW)
    result |= {"settled": settled, "mean_mm": float(away.mean()), "max_mm": float(away.max())}
    result["plant_late_us"] = percentiles(1e6 * begins)
    return result


def percentiles(values: np.ndarray) -> dict[str, float]:
    p50, p99, p999 = np.quantile(values, (0.5, 0.99, 0.999))
    return {"p50": float(p50), "p99": float(p99), "p99.9": float(p999), "worst": float(values.max())}


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
    rows = [
        ["deadlines met", f"{100 * result['deadlines_met']:.2f}% of {result['steps']}"],
        [
            "ticks with the plant itself late",
            f"{result['ticks_with_the_plant_late']}; met in the others: {100 * result['deadlines_met_in_other_ticks']:.2f}%",
        ],
        ["taken by the virtual machine's host", f"{result['stolen_ms']:.0f} ms"],
        ["states skipped", str(result["states_skipped"])],
        ["tracking error, mean (max)", f"{result['mean_mm']:.2f} ({result['max_mm']:.2f}) mm"],
    ]
    for name, label in (
        ("step_us", "step"),
        ("step_cpu_us", "its CPU time"),
        ("answer_us", "from state to control"),
        ("plant_late_us", "the plant's own lateness"),
    ):
        rows.append([f"{label}, µs", ", ".join(f"{key} {value:.0f}" for key, value in result[name].items())])
    return rows
