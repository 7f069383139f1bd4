"""How much the scheduler endures: one row for each way to try it. `python -m tools.reliability ROW` measures one and writes it into
docs/reliability.md, whatever the outcome. Nothing of this is needed to run Muster.
"""
