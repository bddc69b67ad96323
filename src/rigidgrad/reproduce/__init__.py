"""The published figures, tables and claims of three works, measured again on this machine.

`plancher_*.py` and `lynghus_2026.py` say what was published and how our numbers are judged;
`measurements.py` names the scripts that give these numbers, `runner.py` runs them, `readings.py`
reads what they wrote, `page.py` shows it all.
"""
