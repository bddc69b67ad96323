"""Charts of reports: names, units, limits and scales in plain SVG; values under the pointer and
zoom in a browser; runs side by side.
"""

from __future__ import annotations

import json
import re
from html import unescape

import numpy as np
import pytest
from browser import launched, missing

import rigidgrad as rg
from rigidgrad.control.mpc.log import Log
from rigidgrad.reports import plots
from rigidgrad.reports.numbers import controls, positions, velocities
from rigidgrad.reports.plots import Line, Plot

with_browser = pytest.mark.skipif(bool(missing()), reason=missing())


def pendulum(weight=0.1):
    robot = rg.load("double_pendulum")
    costs = [rg.costs.State(np.zeros(4), 1.0, 10.0), rg.costs.Effort(weight)]
    return rg.solve(rg.Problem(robot, start=[0.5, 0.2, 0, 0], steps=20, dt=0.02, costs=costs))


def figures(text):
    """The charts of a page: title, scales, names of lines, legend."""
    found = []
    for part in re.findall(r'<figure class="plot".*?</figure>', text, re.S):
        data = json.loads(unescape(re.search(r'data-plot="(.*?)"', part)[1]))
        keys = re.findall(r'<g class="key".*?<text[^>]*>(.*?)</text>', part)
        found.append(
            data
            | {
                "title": unescape(re.search(r'class="head">(.*?)<', part)[1]),
                "names": [unescape(n) for n in re.findall(r'data-name="(.*?)"', part)],
                "keys": [unescape(k) for k in keys],
                "levels": [float(v) for v in re.findall(r'class="level" data-y="(.*?)"', part)],
                "svg": part,
            }
        )
    return found


# --- without a browser ----------------------------------------------------------------------------


def test_charts_have_names_of_joints_units_and_one_scale_of_time(tmp_path):
    solution = pendulum()
    drawn = figures(rg.report(solution, tmp_path / "r.html").read_text())
    titles = [f["title"] for f in drawn]
    assert titles == ["Cost", "Position [rad]", "Velocity [rad/s]", "Control [N m]"]
    joints = list(rg.load("double_pendulum").joints)
    assert all(f["names"] == joints for f in drawn[1:])
    ends = [solution.times[0], solution.times[-1]]
    assert all(f["x"] == pytest.approx(ends) and f["axis"] == "time [s]" for f in drawn[1:])


def test_numbers_of_a_free_robot_are_apart_by_unit():
    model = rg.load("hyq", floating_base=True).model
    q, v = positions(model), velocities(model)
    assert len(q) == model.nq and len(v) == model.nv
    assert [(n.chart, n.name, n.unit) for n in q[:7]] == [
        *(("Base position", axis, "m") for axis in "xyz"),
        *(("Base orientation, quaternion", f"q{axis}", "") for axis in "xyzw"),
    ]
    assert [n.unit for n in v[:6]] == ["m/s"] * 3 + ["rad/s"] * 3
    hinges = [j.name for j in model.joints[1:]]
    assert [n.name for n in q[7:]] == hinges and {n.unit for n in q[7:]} == {"rad"}
    u = controls(None, rg.load("hyq", floating_base=True), 12)
    assert [n.name for n in u] == hinges and {n.unit for n in u} == {"N m"}
    effort = model.limits.effort[6:]
    assert [n.levels for n in u] == [(-e, e) for e in effort]
    assert [n.name for n in controls(None, None, 2)] == ["u0", "u1"]  # of dynamics of one's own


def test_limits_are_lines_where_they_are_near_and_in_the_legend_where_not():
    x = np.linspace(0, 1, 5)
    [near] = figures(plots.drawing([Plot("A", "rad", (Line("j", x, x, (-0.2, 1.3)),))]))
    assert near["levels"] == [-0.2, 1.3] and near["keys"] == ["j"]
    assert near["y"][0] < -0.2 and near["y"][1] > 1.3
    [far] = figures(plots.drawing([Plot("A", "rad", (Line("j", x, x, (-9.0, 9.0)),))]))
    assert far["levels"] == [] and far["keys"] == ["j (±9)"] and far["y"][1] < 1.1


def test_no_line_is_left_out_and_no_peak_is_thinned_away():
    t = np.linspace(0, 10, 20_001)
    y = np.zeros((len(t), 19))
    y[7777, 3], y[7778, 3] = 5.0, -4.0
    lines = tuple(Line(f"joint {k}", t, y[:, k]) for k in range(19))
    parts = plots.split(Plot("Velocity", "rad/s", lines).scaled())
    assert [len(p.lines) for p in parts] == [7, 7, 5]
    assert len({p.y for p in parts}) == 1 and parts[0].y[0] < -4 and parts[0].y[1] > 5
    x, kept = plots._thinned(t, y[:, 3])
    assert len(x) <= 400 and kept.max() == 5.0 and kept.min() == -4.0 and x[-1] == t[-1]


def test_what_is_not_finite_leaves_a_gap_and_what_is_constant_has_a_scale():
    y = np.array([1.0, np.nan, np.inf, 1.0])
    [drawn] = figures(plots.drawing([Plot("A", "", (Line("<b>", np.arange(4.0), y),))]))
    points = re.search(r'points="(.*?)"', drawn["svg"])[1].split()
    assert len(points) == 2 and "nan" not in " ".join(points) and "<b>" not in drawn["svg"]
    [empty] = figures(plots.drawing([Plot("A", "", (Line("n", np.arange(2.0), y[1:3]),))]))
    assert empty["y"] == [0.0, 1.0]


def test_runs_are_compared_on_the_same_scales(tmp_path):
    gentle, fast = pendulum(1.0), pendulum(0.01)
    text = rg.report({"gentle": gentle, "<fast>": fast}, tmp_path / "r.html").read_text()
    head, rest = text.split("<h2>gentle</h2>")
    assert "gentle, &lt;fast&gt;: compared" in head and "<fast>" not in text
    for name in ("cost", "iterations", "time", "remaining, State"):
        assert f"<th>{name}</th>" in head
    assert f"<td>{gentle.cost:.9g}</td><td>{fast.cost:.9g}</td>" in head
    assert str(fast.remaining["State"]) in head
    overlaid = figures(head)
    joints = list(rg.load("double_pendulum").joints)
    assert [f["title"] for f in overlaid] == [
        "Cost",
        *(f"{joint} [{unit}]" for unit in ("rad", "rad/s", "N m") for joint in joints),
    ]
    assert all(f["names"] == ["gentle", "<fast>"] for f in overlaid)
    own = figures(rest)
    first, second = own[: len(own) // 2], own[len(own) // 2 :]
    for a, b in zip(first, second, strict=True):
        assert a["title"] == b["title"] and a["x"] == b["x"] and a["y"] == b["y"]
    # the scale of a joint in the comparison is that of its chart
    assert overlaid[1]["y"] == first[1]["y"]


def test_a_log_of_a_known_robot_shows_measured_states_and_named_controls(tmp_path):
    robot = rg.load("double_pendulum")
    log = Log(4, 2)
    for k in range(30):
        log.add_step(0.01 * k, None if k == 7 else np.full(4, 0.01 * k), np.array([k, -k]))
    drawn = figures(rg.report(log, tmp_path / "r.html", robot=robot).read_text())
    titles = [f["title"] for f in drawn]
    assert titles == ["Position [rad]", "Velocity [rad/s]", "Control [N m]"]
    assert all(f["names"] == list(robot.joints) for f in drawn)


def test_a_report_is_small_and_may_fetch_nothing(tmp_path):
    page = rg.report(pendulum(), tmp_path / "r.html")
    text = page.read_text()
    assert "default-src 'none'" in text and "src=" not in text.replace("-src", "")
    assert len(plots.script()) < 12_000 and sum(len(f["svg"]) for f in figures(text)) < 20_000


# --- in a browser ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with launched() as made:
        yield made


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    path = rg.report(pendulum(), tmp_path_factory.mktemp("report") / "r.html")
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    page.problems = []
    page.on("console", lambda m: page.problems.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: page.problems.append(str(e)))
    page.goto(path.as_uri())
    yield page
    assert not page.problems
    page.close()


def area(page, title):
    """The middle of a chart's area, and its box."""
    chart = page.locator("figure.plot", has_text=title).first
    chart.scroll_into_view_if_needed()
    return chart, chart.locator(".back").bounding_box()


def labels(chart):
    """The numbers along the axis across."""
    texts = chart.locator('.ticks text[text-anchor="middle"]').all_text_contents()
    return [float(t) for t in texts]


@with_browser
def test_the_pointer_shows_the_values_under_it(page):
    solution = pendulum()
    chart, box = area(page, "Position [rad]")
    assert not chart.locator(".value").is_visible()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.4 * box["height"])
    said = chart.locator(".value").inner_text()
    k = round(float(re.search(r"time ([\d.]+) s", said)[1]) / solution.dt)
    assert k == 10
    for name, value in zip(rg.load("double_pendulum").joints, solution.x[k, :2], strict=True):
        shown = float(re.search(rf"{re.escape(name)}: (\S+) rad", said)[1])
        assert shown == pytest.approx(value, rel=1e-4)
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] - 200)
    assert not chart.locator(".value").is_visible()


@with_browser
def test_dragging_zooms_all_charts_over_time_and_a_double_click_resets(page):
    position, box = area(page, "Position [rad]")
    velocity = page.locator("figure.plot", has_text="Velocity").first
    cost = page.locator("figure.plot", has_text="Cost").first
    before, iterations = labels(position), labels(cost)
    assert before[0] == 0 and before[-1] == pytest.approx(0.4)
    middle = box["y"] + 0.5 * box["height"]
    page.mouse.move(box["x"] + 0.25 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], middle, steps=3)
    page.mouse.up()
    for chart in (position, velocity):
        zoomed = labels(chart)
        assert zoomed[0] >= 0.1 - 1e-9 and zoomed[-1] <= 0.2 + 1e-9 and len(zoomed) >= 2
    assert labels(position) == labels(velocity)
    assert labels(cost) == iterations  # over another axis
    assert position.locator(".value").is_hidden()
    page.mouse.dblclick(box["x"] + 0.6 * box["width"], middle)
    assert labels(position) == before == labels(velocity)


@with_browser
def test_keys_move_along_a_line_and_names_hide_it(page):
    chart, _ = area(page, "Velocity [rad/s]")
    chart.locator("svg").first.focus()
    page.keyboard.press("ArrowRight")
    first = chart.locator(".value b").inner_text()
    page.keyboard.press("ArrowRight")
    assert chart.locator(".value b").inner_text() != first
    line = chart.locator("polyline").first
    chart.locator(".key").first.click()
    assert line.get_attribute("visibility") == "hidden"
    chart.locator(".key").first.click()
    assert line.get_attribute("visibility") == "visible"


@with_browser
def test_charts_are_there_without_a_script(browser, tmp_path):
    path = rg.report(pendulum(), tmp_path / "r.html")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    lines = page.locator("figure.plot polyline")
    assert lines.count() == 7 and all(lines.nth(k).is_visible() for k in range(7))
    said = page.locator("figure.plot svg[role=img]").nth(1).get_attribute("aria-label")
    assert said.startswith("Position [rad] over time [s]: ") and " from " in said
    context.close()
