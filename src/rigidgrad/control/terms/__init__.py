"""What a problem charges for or keeps between bounds: one cost or constraint per file. `rg.costs`
and `rigidgrad.control.limits` are where users find them.
"""
