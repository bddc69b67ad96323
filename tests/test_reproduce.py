"""Published figures beside ours: the catalogue is whole, verdicts follow from numbers, measurements
are kept, one failure stops nothing, the page can be read.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest
from browser import launched, missing, picture, share

from rigidgrad.commands import reproduce as command
from rigidgrad.errors import InputError
from rigidgrad.reproduce import page, readings, runner
from rigidgrad.reproduce.catalogue import ENTRIES, WORKS, entries_of, measurements_of
from rigidgrad.reproduce.entry import (
    BETTER,
    DIFFERS,
    ELSEWHERE,
    FAILED,
    FPGA,
    GPU,
    NOT_MEASURED,
    REPRODUCED,
    SHOWN,
    device,
    fact,
    judge,
    number,
    statement,
    trend,
    verdict_of,
)
from rigidgrad.reproduce.measurements import MEASUREMENTS, Measurement

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "bench"))

FIGURES = {
    "Plancher 2021": ["Fig. 1", "Fig. 2", "Fig. 3", "Table I"],
    "Plancher 2022": [
        *(f"Fig. 4.{k}" for k in (3, 4, 5, 6, 7, 8, 9, 11)),
        *(f"Fig. 5.{k}" for k in (1, 4, 5, 6, 7, 8)),
        "Table 5.2",
        *(f"Fig. 6.{k}" for k in range(1, 6)),
        "Fig. 7.1",
        "Fig. C.1",
    ],
    "Lynghus 2026": [*(f"Fig. {k}" for k in range(10, 17)), "Table 1"],
}
CLAIMS = {
    "Plancher 2021": ["gradients' share", "persistent threads", "folding", "fixed-point range"],
    "Plancher 2022": [
        "HyQ's shared memory",
        "spread of timings",
        "other ways to descend",
        "conjugate gradients on a GPU",
    ],
    "Lynghus 2026": ["kernels"],
}


# --- the catalogue --------------------------------------------------------------------------------


def test_every_figure_table_and_claim_has_its_entry():
    labels = {seed: [e.label for e in entries_of([seed])] for seed in WORKS}
    for seed, figures in FIGURES.items():
        wanted = [*figures, *(f"Claim: {claim}" for claim in CLAIMS.get(seed, []))]
        assert sorted(labels[seed]) == sorted(wanted)
    assert len({e.key for e in ENTRIES}) == len(ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.key)
def test_an_entry_says_all_that_it_must_even_when_nothing_is_measured(entry):
    assert entry.hardware and entry.because and set(entry.measurements) <= set(MEASUREMENTS)
    finding = judge(entry, {}, {})
    assert finding.verdict in (NOT_MEASURED, GPU, ELSEWHERE)
    assert entry.source and (finding.verdict == ELSEWHERE or entry.measurements or entry.device)
    assert finding.rows and all(row.what for row in finding.rows)
    needs = {row.verdict for row in finding.rows} & {GPU, FPGA}
    assert bool(needs) == bool(entry.device), "what needs a device says how it is measured there"
    assert all(row.published for row in finding.rows if row.verdict), "what is judged was published"


def test_the_scripts_are_there_and_take_the_options():
    for m in MEASUREMENTS.values():
        script = ROOT / "bench" / m.script
        text = script.read_text()
        for option in (*m.fast, *m.full, "--json"):
            if option.startswith("--"):
                # gpu.py names its options in a table
                listed = re.search(r"listed = \{(.*?)\n    \}", text, re.S)
                assert f'"{option}"' in text or (listed and f'"{option[2:]}":' in listed[1]), (
                    f"{script.name} has no {option}"
                )


# --- verdicts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("published", "ours", "better", "verdict"),
    [
        (10.0, 10.0, "", REPRODUCED),
        (10.0, 11.4, "", REPRODUCED),  # within 15%
        (10.0, 11.6, "", DIFFERS),
        (10.0, 8.4, "", DIFFERS),
        (10.0, 20.0, "higher", BETTER),
        (10.0, 8.4, "higher", DIFFERS),
        (10.0, 5.0, "lower", BETTER),
        (10.0, 11.6, "lower", DIFFERS),
        ((2.0, 4.0), (2.5, 3.5), "", REPRODUCED),
        ((2.0, 4.0), (2.5, 30.0), "", DIFFERS),
        ((2.0, 4.0), (2.5, 30.0), "higher", BETTER),
        ((2.0, 4.0), (1.0, 30.0), "higher", DIFFERS),  # the worst of ours counts
        ((2.0, 4.0), (1.0, 3.0), "lower", BETTER),
        ((0.0, 0.0), 0.0, "lower", REPRODUCED),
        ((0.0, 0.0), 1.0, "lower", DIFFERS),
        (10.0, None, "higher", NOT_MEASURED),
    ],
)
def test_a_number_is_judged_by_the_published_one(published, ours, better, verdict):
    assert number("x", published, ours, "ms", better=better).verdict == verdict


def test_numbers_are_shown_with_their_unit():
    assert (
        number("x", (1.0, 2.5), 1234.5, "x").published,
        number("x", (1.0, 2.5), 1234.5, "µs").ours,
    ) == ("1 to 2.5x", "1,234 µs")


def test_one_row_that_differs_decides_and_devices_come_last():
    good, better, bad = number("a", 1, 1), number("b", 1, 2, better="higher"), number("c", 1, 2)
    gpu, unknown, told = device("d", 3, GPU), statement("e", None), fact("f", 3)
    assert verdict_of([good, better, bad, gpu]) == DIFFERS
    assert verdict_of([good, better, gpu, unknown]) == BETTER
    assert verdict_of([good, gpu, told]) == REPRODUCED
    assert verdict_of([gpu, unknown]) == NOT_MEASURED
    assert verdict_of([gpu, told]) == GPU
    assert verdict_of([]) == NOT_MEASURED == verdict_of([fact("i", None)])
    assert verdict_of([told, fact("i", None)]) == SHOWN  # nothing was published
    assert (statement("g", True).verdict, statement("g", False, "why").ours) == (
        REPRODUCED,
        "no: why",
    )


@pytest.mark.parametrize(
    ("values", "up", "verdict"),
    [
        ({1: 3, 2: 5, 4: 6, 8: 9}, True, REPRODUCED),
        ({1: 3, 2: 5, 4: 4.8, 8: 9}, True, REPRODUCED),  # one step back, within 15%
        ({1: 3, 2: 5, 4: 4, 8: 9}, True, DIFFERS),
        ({1: 3, 2: 3.1, 4: 3.2}, True, DIFFERS),  # level
        ({1: 3, 2: 5, 4: None}, True, REPRODUCED),  # never reached lies above all
        ({1: 3, 2: None, 4: 9}, True, DIFFERS),
        ({1: None, 2: None}, True, NOT_MEASURED),
        ({1: 9, 2: 5, 4: 5.5}, False, REPRODUCED),
        ({1: 5, 2: 9}, False, DIFFERS),
        ({1: 3}, True, NOT_MEASURED),
        ({}, True, NOT_MEASURED),
    ],
)
def test_a_curve_is_judged_by_where_it_goes(values, up, verdict):
    row = trend("x", values, up=up)
    assert row.verdict == verdict
    assert all(f"{m}: " in row.ours for m in values)


def test_curves_to_three_tolerances_are_judged_one_by_one():
    def row(iterations: list[float | None]) -> dict:
        reached = {
            near: {"iterations": n, "ms": n}
            for near, n in zip(("0.01", "0.001", "0.0001"), iterations, strict=True)
        }
        depth = {"median": 0.5}
        return {"reached": reached, "failed": 0, "trials": 10, "line_search_depth": depth}

    blocks = {
        "1": row([2, 3, 3]),
        "4": row([2, 4, 6]),
        "4 stale": row([2, 6, 9]),
        "8 stale": row([2, None, None]) | {"failed": 10},
    }
    results = {"parallel_ddp": {"experiments": [{"experiment": "quadrotor", "blocks": blocks}]}}
    bare = dataclasses.replace(entry_of("Plancher 2022 Fig. 4.3"), charts=lambda _: [])
    rows = {r.what: r for r in judge(bare, results, {}).rows}
    assert rows["more blocks, more iterations to 1e-2, as written"].verdict == DIFFERS
    for near in ("1e-3", "1e-4"):
        assert rows[f"more blocks, more iterations to {near}, as written"].verdict == REPRODUCED
    assert "never" in rows["more blocks, more iterations to 1e-4, as written"].ours
    assert rows["iterations to 1e-4, first pass through all blocks"].ours == "M=1: 3, M=4: 6"


@pytest.mark.parametrize(("load", "verdict"), [(0.4, REPRODUCED), (7.0, NOT_MEASURED)])
def test_a_busy_machine_does_not_decide_what_threads_gain(load, verdict):
    def times(backward: float, forward: float) -> dict:
        parts = {"expansion": 1.0, "backward": backward, "forward": forward}
        return {"1": parts, "2": parts}

    least = {"1": times(8.0, 9.0), "2": times(4.0, 6.0), "4": times(4.0, 7.0)}
    threads = [{"experiment": "arm_text", "threads": 2, "least_ms": least}]
    machine = {"cpu": "c", "cores": 2, "load": [load, 1, 1]}
    found = {"parallel_ddp": {"machine": machine, "experiments": [], "threads": threads}}
    finding = judge(entry_of("Plancher 2022 Fig. 4.7"), found, {})
    assert finding.verdict == verdict
    assert "M=1: 8 ms, M=2: 4 ms" in [row.ours.removeprefix("yes: ") for row in finding.rows]


def test_persistent_threads_are_judged_by_the_median_batch():
    def row(count: int, ratio: float) -> dict:
        gain = {"kept_against_launched": {"ratio": ratio}, "us": {}}
        return {"robot": "iiwa14", "count": count, "shared": True, **gain}

    def verdict(*ratios: float) -> str:
        rows = [row(count, ratio) for count, ratio in zip((32, 64, 128), ratios, strict=True)]
        entry = entry_of("Plancher 2021 Claim: persistent threads")
        bare = dataclasses.replace(entry, charts=lambda _: [])
        return judge(bare, {"claims": {"batches": {"rows": rows}}}, {}).verdict

    assert verdict(1.0, 2.0, 9.0) == REPRODUCED
    assert verdict(1.0, 1.1, 9.0) == DIFFERS  # one batch that gains much is not the rule


def test_a_measurement_counts_once():
    measured = {"preconditioners": studied(2.4)}
    pointers = [e for e in ENTRIES if judge(e, measured, {}).verdict == ELSEWHERE]
    assert [e.label for e in pointers] == ["Fig. 5.1", "Fig. 5.5", "Fig. 5.6", "Fig. C.1"]
    for e in pointers:
        (row,) = judge(e, measured, {}).rows
        assert entry_of(row.ours.removeprefix("judged at ")).measurements


def studied(gain: float) -> dict:
    """A study of preconditioners in which the stair is `gain` times better than overlapping
    blocks.
    """
    rows = {
        name: {"condition": c, "iterations_mean": 1.5 * c**0.5, "eigenvalues": [top / c, top]}
        for name, c, top in (
            ("none", 1000.0 * gain, 50.0),
            ("jacobi", 9.0 * gain, 2.0),
            ("block_jacobi", 8.0 * gain, 2.0),
            ("alternating", 20.0 * gain, 1.5),
            ("overlapping", 10.0 * gain, 3.0),
            ("symmetric_stair", 10.0, 1.0),
        )
    }
    machine = {
        "cpu": "a test's CPU",
        "cores": 2,
        "date": "2026-01-02",
        "command": "python x",
        "versions": {"commit": "abc"},
    }
    return {
        "machine": machine,
        "study": {name: {"preconditioners": rows} for name in readings.SYSTEMS},
    }


def entry_of(key: str):
    return next(e for e in ENTRIES if e.key == key)


def test_verdicts_follow_from_the_results():
    entry = entry_of("Plancher 2022 Fig. 6.2")
    assert judge(entry, {"preconditioners": studied(2.4)}, {}).verdict == REPRODUCED
    differs = judge(entry, {"preconditioners": studied(1.2)}, {})
    assert differs.verdict == DIFFERS and "overlapping blocks) because: " in differs.reason
    assert judge(entry, {"preconditioners": studied(5.0)}, {}).verdict == BETTER
    assert (
        judge(entry_of("Plancher 2022 Fig. 6.1"), {"preconditioners": studied(2.0)}, {}).verdict
        == REPRODUCED
    )


def test_results_of_another_layout_fail_with_advice():
    finding = judge(
        entry_of("Plancher 2022 Fig. 6.2"), {"preconditioners": {"study": {"pendulum": {}}}}, {}
    )
    assert (
        finding.verdict == FAILED
        and "preconditioners.json" in finding.reason
        and "measure again" in finding.reason
    )


def test_what_a_gpu_would_have_to_tell_is_never_judged_by_an_estimate():
    states = [
        {"states": n, "split": {"total": 99.0 * n}, "completely fused": {"total": 1.0}}
        for n in (16, 128)
    ]
    bare = dataclasses.replace(entry_of("Plancher 2021 Fig. 2"), charts=lambda _: [])
    finding = judge(bare, {"gpu": {"estimate": {"iiwa14": states}}}, {})
    assert finding.verdict == GPU and all("estimated" in row.ours for row in finding.rows)


def test_a_result_says_where_it_comes_from():
    machine = {"cpu": "c", "cores": 2, "load": [0.5, 1, 2], "versions": {"commit": "abc"}}
    assert readings.origin({"machine": machine}) == {
        "cpu": "c",
        "cores": 2,
        "load": 0.5,
        "commit": "abc",
    }
    assert readings.origin({"figure": {"machine": machine}})["cpu"] == "c"
    assert readings.origin(
        {"machine": "no GPU", "date": "today", "estimate": {"machine": {"pcie": 1.0}}}
    ) == {
        "cpu": "no GPU",
        "date": "today",
    }
    assert readings.origin([]) == {}


# --- measuring ------------------------------------------------------------------------------------

SCRIPT = """
import json, sys
from pathlib import Path
target = Path(sys.argv[sys.argv.index("--json") + 1])
with open(Path(__file__).with_name("calls"), "a") as calls:
    calls.write(Path(__file__).stem + " " + " ".join(sys.argv[1:-2]) + "\\n")
target.write_text(json.dumps({"machine": {"cpu": "fake", "date": "today"}}))
"""


@pytest.fixture
def bench(tmp_path):
    folder = tmp_path / "bench"
    folder.mkdir()
    for name in MEASUREMENTS:
        (folder / f"{name}.py").write_text(SCRIPT)
    return folder


def calls(bench: Path) -> list[str]:
    path = bench / "calls"
    found = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return [line.split()[0] for line in found]


NAMES = ["claims", "parallel_ddp"]  # whose options differ between fast and full


def test_what_was_measured_is_not_measured_again(bench, tmp_path):
    out = tmp_path / "out"
    said = []
    first = runner.measure(NAMES, bench, out, True, lambda note, done: said.append((note, done)))
    assert calls(bench) == NAMES and set(first.results) == set(NAMES) and not first.troubles
    assert sum(done for _, done in said) == sum(MEASUREMENTS[name].seconds for name in NAMES)
    again = runner.measure(NAMES, bench, out, True)
    assert (
        calls(bench) == []
        and again.results == first.results
        and "measured before" in again.how["claims"]
    )
    # an interrupted one leaves no stamp
    (out / "claims.done").unlink()
    runner.measure(NAMES, bench, out, True)
    assert calls(bench) == ["claims"]
    # other options, other sources
    runner.measure(NAMES, bench, out, False)
    assert calls(bench) == NAMES
    (bench / "claims.py").write_text(SCRIPT + "\n# changed\n")
    runner.measure(NAMES, bench, out, False)
    assert calls(bench) == NAMES


def test_a_script_that_fails_stops_nothing_and_is_tried_again(bench, tmp_path):
    out = tmp_path / "out"
    (bench / "claims.py").write_text(
        "print('so far so good')\nraise SystemExit('the peer has gone')\n"
    )
    (bench / "data_types.py").write_text("print('nothing written')\n")
    (bench / "trees.py").write_text(
        SCRIPT.replace('json.dumps({"machine": {"cpu": "fake", "date": "today"}})', "'{'")
    )
    names = ["claims", "preconditioners", "data_types", "trees"]
    found = runner.measure(names, bench, out, True)
    assert calls(bench) == ["preconditioners", "trees"] and list(found.results) == [
        "preconditioners"
    ]
    assert (
        "so far so good" in found.troubles["claims"]
        and "the peer has gone" in found.troubles["claims"]
    )
    assert (
        found.troubles["data_types"] == "it wrote no results"
        and "no JSON" in found.troubles["trees"]
    )
    assert found.troubles["claims"].endswith("exit code 1")
    finding = judge(
        entry_of("Plancher 2021 Claim: persistent threads"), found.results, found.troubles
    )
    assert (
        finding.verdict == FAILED
        and "bench/claims.py ended with an error" in finding.reason
        and "the peer has gone" in finding.reason
    )
    (bench / "claims.py").write_text(SCRIPT)
    assert "claims" in runner.measure(names[:1], bench, out, True).results


def test_a_script_that_crashes_after_its_results_has_failed(bench, tmp_path):
    (bench / "claims.py").write_text(
        SCRIPT + "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    found = runner.measure(["claims"], bench, tmp_path / "out", True)
    assert not found.results and found.troubles["claims"].endswith("signal SIGSEGV")


def test_what_the_time_does_not_suffice_for_is_not_measured_and_has_not_failed(bench, tmp_path):
    (bench / "claims.py").write_text(
        SCRIPT + "print('written', flush=True)\nimport time\ntime.sleep(60)\n"
    )
    names = ["claims", "preconditioners"]
    found = runner.measure(names, bench, tmp_path / "out", True, minutes=0.02)
    assert not found.results and not found.troubles
    assert "stopped after" in found.unfinished["claims"]
    assert found.unfinished["preconditioners"].startswith("not begun")
    entry = entry_of("Plancher 2021 Claim: persistent threads")
    finding = judge(entry, found.results, found.troubles, True, found.unfinished)
    assert finding.verdict == NOT_MEASURED and "--minutes" in finding.reason
    # what was half done is begun again
    (bench / "claims.py").write_text(SCRIPT)
    assert set(runner.measure(names, bench, tmp_path / "out", True).results) == set(names)


def test_a_missing_tool_is_said_and_leaves_the_rest(tmp_path):
    tool = Measurement("x", ("--a",), ("--b", "{out}/y"), 1.0, {"no-such-command": None})
    assert tool.options(True, tmp_path) is None and tool.missing() == ["no-such-command"]
    other = Measurement("x", ("--a",), ("--b", "{out}/y"), 1.0, {"no-such-command": ("--less",)})
    assert other.options(True, tmp_path) == ("--less",)
    there = Measurement("x", ("--a",), ("--b", "{out}/y"), 1.0, {"python3": None})
    assert there.options(False, tmp_path) == ("--b", f"{tmp_path}/y")


def test_wrong_folders_are_errors_that_say_what_to_do(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="--bench path/to/bench"):
        runner.bench_folder(tmp_path)
    monkeypatch.setattr(runner, "PACKAGE", tmp_path / "site-packages" / "rigidgrad")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="installed package does not hold them"):
        runner.bench_folder(None)
    with pytest.raises(InputError, match="no folder"):
        runner.stored(tmp_path / "none", NAMES)
    with pytest.raises(InputError, match=r"none of claims\.json"):
        runner.stored(tmp_path, NAMES)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        runner.measure([], tmp_path, tmp_path / "file" / "out", True)


# --- the command and the page ---------------------------------------------------------------------


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    parsed = parser.parse_args(["reproduce", *arguments])
    return parsed.run(parsed)


def test_the_command_measures_and_writes_a_page(bench, tmp_path, capsys):
    out = tmp_path / "out"
    assert run("lynghus-2026", "--bench", str(bench), "--out", str(out), "--json") == 0
    data = json.loads(capsys.readouterr().out)
    labels = [*FIGURES["Lynghus 2026"], "Claim: kernels"]
    assert [e["label"] for e in data["entries"]] == labels
    assert data["summary"] == {NOT_MEASURED: 9}
    assert (
        calls(bench) == ["trees", "trees"]
        and data["mode"] == "fast mode"
        and data["measurements"]["trees"]["cpu"] == "fake"
    )
    assert "not measured in fast mode" in data["entries"][0]["reason"]
    assert (
        json.loads((out / "reproduction.json").read_text()) == data
        and (out / "reproduction.html").is_file()
    )
    (bench / "trees.py").write_text("raise SystemExit('broken')\n")
    assert run("lynghus-2026", "--bench", str(bench), "--out", str(out)) == 1
    assert "broken" in capsys.readouterr().out


def test_stored_results_make_a_page_without_measuring(tmp_path, capsys):
    results = tmp_path / "results"
    results.mkdir()
    (results / "preconditioners.json").write_text(json.dumps(studied(2.4)))
    assert run("plancher-2022", "--from", str(results), "--out", str(tmp_path / "out")) == 0
    printed = capsys.readouterr().out
    assert re.search(r"Plancher 2022 Fig\. 6\.2 .*reproduced", printed) and re.search(
        r"Plancher 2022 Fig\. 4\.3 .*not measured", printed
    )
    assert (
        printed.startswith("Plancher 2022: GPU acceleration for real-time") and "004" not in printed
    )


def made(tmp_path) -> Path:
    measured = runner.Measured(
        {"preconditioners": studied(1.2)},
        dict.fromkeys(MEASUREMENTS, "read"),
        {"trees": "Traceback <b>" + "x" * 500},
    )
    findings = [judge(e, measured.results, measured.troubles) for e in ENTRIES]
    path = tmp_path / "page.html"
    path.write_text(page.page(findings, measured, "test"))
    return path


def test_the_page_needs_no_network_and_carries_its_numbers(tmp_path):
    text = made(tmp_path).read_text()
    assert "http://" not in text.replace("http://www.w3.org/", "") and "https://" not in text
    assert "Traceback &lt;b&gt;" in text and "Traceback <b>" not in text
    data = json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1]
    )
    assert (
        len(data["entries"]) == len(ENTRIES)
        and data["summary"][FAILED] == 7
        and data["environment"]["rigidgrad"]
    )
    # the hardware of both
    assert "a test's CPU" in text.replace("&#x27;", "'") and "i7-10700K" in text


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_the_page_in_a_browser(tmp_path):
    path = made(tmp_path)
    with launched() as browser:
        for scheme, width in (("light", 1100), ("dark", 1100), ("light", 360), ("dark", 360)):
            shown = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
            asked, errors = [], []
            shown.on("request", lambda request, asked=asked: asked.append(request.url))
            shown.on("pageerror", lambda error, errors=errors: errors.append(error))
            shown.goto(path.as_uri())
            assert asked == [path.as_uri()] and not errors
            assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
                f"{scheme}, {width} pixels: wider than the window"
            )
            assert shown.locator("h3").count() == len(ENTRIES)
            broken = (
                "[...document.querySelectorAll('a')].filter(a =>"
                " !document.getElementById(a.hash.slice(1))).length"
            )
            assert shown.evaluate(broken) == 0
            paper = (255, 255, 255) if scheme == "light" else (15, 23, 42)
            assert share(picture(shown), paper, within=10) > 0.5
            shown.locator("h3", has_text="Fig. 6.1:").scroll_into_view_if_needed()
            assert shown.locator("svg").count() >= 6
            shown.close()


# --- claims that are counted ----------------------------------------------------------------------


def test_counts_that_claims_rest_on():
    import claims

    memory = claims.memory(True)["hyq"]["rnea_derivatives"]
    # four legs of three joints: of 12 x 12 columns a body's ∂v and ∂a keep those above it, ∂f those
    # above and below; for q and v, six numbers each
    assert memory["full"] - memory["columns"] == 2 * 6 * (2 * (144 - 4 * 6) + 144 - 4 * 9)
    assert memory["kernel"] < memory["columns"] < 0.4 * memory["full"]
    results = {"claims": {"memory": claims.memory(True)}}
    assert (
        judge(entry_of("Plancher 2022 Claim: HyQ's shared memory"), results, {}).verdict
        == REPRODUCED
    )
    assert measurements_of([entry_of("Plancher 2022 Claim: HyQ's shared memory")]) == ["claims"]
