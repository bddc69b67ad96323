"""Programs as circuits: a Program is lowered, scheduled onto units, and rendered as Verilog with
the microcode that drives them.
"""
