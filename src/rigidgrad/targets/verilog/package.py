"""A circuit as a part of a larger design: an AXI4-Stream wrapper, an IP-XACT description, and
scripts and constraints for Vivado (VCU118) and nextpnr (ECP5).

What is written for Vivado has not run in Vivado here: tests check its structure alone.
"""

from __future__ import annotations

from xml.etree import ElementTree as xml

from rigidgrad.targets.verilog.design import MARK, Design
from rigidgrad.targets.verilog.place import constraints
from rigidgrad.targets.verilog.render import lane_bits

VCU118 = "xcvu9p-flga2104-2L-e"
SPIRIT = "http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009"


def package(design: Design, clock: float) -> dict[str, str]:
    """Files by name; with the circuit's own .v they are an IP core. `clock` in Hz is a wish."""
    name = design.name
    return {
        f"{name}.v": design.files()[f"{name}.v"],
        f"{name}_axi.v": axi(design),
        "component.xml": component(design),
        f"{name}_vcu118.tcl": vivado(design, clock),
        f"{name}_vcu118.xdc": (
            f"# {MARK}\ncreate_clock -name aclk -period {1e9 / clock:.3f} [get_ports aclk]\n"
        ),
        f"{name}_ecp5.lpf": constraints(clock),
    }


def flags_word(design: Design) -> int | None:
    """Which word of a result's last beat carries the flags, as a link to a host has no TUSER: the
    highest, where results leave it free.
    """
    c = design.circuit
    return None if c.output_words % c.lanes == 0 else c.lanes - 1


def axi(design: Design) -> str:
    bits, lanes, name = lane_bits(design.circuit), design.circuit.lanes, design.name
    width, word = bits * lanes, flags_word(design)
    if word is None:
        data = "    assign m_axis_tdata = data;"
    else:
        marked = f"{{{bits - 2}'d0, m_axis_tuser}}"
        rest = f"data[{word * bits - 1}:0]" if word else ""
        low = f", {rest}" if rest else ""
        data = f"    assign m_axis_tdata = m_axis_tlast ? {{{marked}{low}}} : data;"
    where = "TUSER" if word is None else f"TUSER, and word {word} of the last beat,"
    return f"""// {MARK}
// AXI4-Stream: states follow each other beat by beat; their length is known, so TLAST of the input is not used.
// TLAST marks the last beat of each result; {where} its flags: bit 0 saturated, bit 1 an input was no number of the format.
`default_nettype none
module {name}_axi (
    input wire aclk, input wire aresetn,
    input wire [{width - 1}:0] s_axis_tdata, input wire s_axis_tvalid, output wire s_axis_tready, input wire s_axis_tlast,
    output wire [{width - 1}:0] m_axis_tdata, output wire m_axis_tvalid, input wire m_axis_tready, output wire m_axis_tlast,
    output wire [1:0] m_axis_tuser);
    // no beat is taken during a reset, and none is offered
    reg reset;
    initial reset = 1'b1;
    always @(posedge aclk) reset <= ~aresetn;
    wire ready, valid; wire [{width - 1}:0] data;
    assign s_axis_tready = ready & ~reset;
    assign m_axis_tvalid = valid & ~reset;
    {name} circuit (.clk(aclk), .reset(reset),
        .in_valid(s_axis_tvalid & ~reset), .in_ready(ready), .in_data(s_axis_tdata),
        .out_valid(valid), .out_ready(m_axis_tready), .out_data(data), .out_last(m_axis_tlast), .out_flags(m_axis_tuser));
{data}
endmodule
`default_nettype wire
"""


def vivado(design: Design, clock: float) -> str:
    """Out of context: synthesis, placement and routing, with reports of time and resources."""
    name = design.name
    return f"""# {MARK}: vivado -mode batch -source {name}_vcu118.tcl
# For a VCU118, {clock / 1e6:g} MHz wished for. This script has not run here: no Vivado was at hand.
set_part {VCU118}
read_verilog {name}.v
read_verilog {name}_axi.v
read_xdc -mode out_of_context {name}_vcu118.xdc
synth_design -top {name}_axi -part {VCU118} -mode out_of_context -flatten_hierarchy rebuilt
opt_design
place_design
phys_opt_design
route_design
report_timing_summary -file timing.txt
report_utilization -hierarchical -file utilization.txt
report_power -file power.txt
write_checkpoint -force {name}_axi.dcp
"""


# --- IP-XACT --------------------------------------------------------------------------------------


def ports(design: Design) -> dict[str, tuple[str, int]]:
    """Of the wrapper: direction and bits by name."""
    width = lane_bits(design.circuit) * design.circuit.lanes
    return {
        "aclk": ("in", 1),
        "aresetn": ("in", 1),
        "s_axis_tdata": ("in", width),
        "s_axis_tvalid": ("in", 1),
        "s_axis_tready": ("out", 1),
        "s_axis_tlast": ("in", 1),
        "m_axis_tdata": ("out", width),
        "m_axis_tvalid": ("out", 1),
        "m_axis_tready": ("in", 1),
        "m_axis_tlast": ("out", 1),
        "m_axis_tuser": ("out", 2),
    }


def component(design: Design) -> str:
    """component.xml by IEEE 1685-2009, with Xilinx's definitions of buses."""
    xml.register_namespace("spirit", SPIRIT)
    root = xml.Element(f"{{{SPIRIT}}}component")
    named = {"vendor": "rigidgrad", "library": "circuits", "name": design.name, "version": "1.0"}
    for key, value in named.items():
        _add(root, key, value)
    buses = _add(root, "busInterfaces")
    every = ports(design)
    for bus, mode in (("s_axis", "slave"), ("m_axis", "master")):
        signals = {p.removeprefix(f"{bus}_").upper(): p for p in every if p.startswith(bus)}
        _bus(buses, bus, ("interface", "axis"), mode, signals, {})
    clock = {"ASSOCIATED_BUSIF": "s_axis:m_axis", "ASSOCIATED_RESET": "aresetn"}
    _bus(buses, "aclk", ("signal", "clock"), "slave", {"CLK": "aclk"}, clock)
    low = {"POLARITY": "ACTIVE_LOW"}
    _bus(buses, "aresetn", ("signal", "reset"), "slave", {"RST": "aresetn"}, low)
    model = _add(root, "model")
    view = _add(_add(model, "views"), "view")
    _add(view, "name", "xilinx_anylanguagesynthesis")
    _add(view, "envIdentifier", ":vivado.xilinx.com:synthesis")
    _add(view, "language", "Verilog")
    _add(view, "modelName", f"{design.name}_axi")
    _add(_add(view, "fileSetRef"), "localName", "sources")
    listed = _add(model, "ports")
    for port, (direction, bits) in every.items():
        entry = _add(listed, "port")
        _add(entry, "name", port)
        wire = _add(entry, "wire")
        _add(wire, "direction", direction)
        if bits > 1:
            vector = _add(wire, "vector")
            _add(vector, "left", str(bits - 1))
            _add(vector, "right", "0")
    files = _add(_add(root, "fileSets"), "fileSet")
    _add(files, "name", "sources")
    for name in (f"{design.name}.v", f"{design.name}_axi.v"):
        file = _add(files, "file")
        _add(file, "name", name)
        _add(file, "fileType", "verilogSource")
    _add(root, "description", f"{MARK}: {design.function} of a robot")
    xml.indent(root)
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- {MARK} -->\n'
    return head + xml.tostring(root, "unicode") + "\n"


def _add(parent: xml.Element, tag: str, text: str | None = None) -> xml.Element:
    child = xml.SubElement(parent, f"{{{SPIRIT}}}{tag}")
    child.text = text
    return child


def _bus(
    buses: xml.Element,
    name: str,
    kind: tuple[str, str],
    mode: str,
    signals: dict[str, str],
    parameters: dict[str, str],
) -> None:
    bus = _add(buses, "busInterface")
    _add(bus, "name", name)
    for tag, suffix in (("busType", ""), ("abstractionType", "_rtl")):
        reference = _add(bus, tag)
        library, bus_name = kind
        values = {"vendor": "xilinx.com", "library": library, "name": bus_name + suffix}
        for key, value in (values | {"version": "1.0"}).items():
            reference.set(f"{{{SPIRIT}}}{key}", value)
    _add(bus, mode)
    maps = _add(bus, "portMaps")
    for logical, physical in signals.items():
        pair = _add(maps, "portMap")
        _add(_add(pair, "logicalPort"), "name", logical)
        _add(_add(pair, "physicalPort"), "name", physical)
    if parameters:
        listed = _add(bus, "parameters")
        for key, value in parameters.items():
            entry = _add(listed, "parameter")
            _add(entry, "name", key)
            _add(entry, "value", value)
