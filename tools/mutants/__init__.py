"""Do the tests notice a fault? `python -m tools.mutants` makes small faults in the code that decides, one by one (`faults.py`),
runs the tests that execute the faulty line (`reach.py`, `run.py`), and lists the faults that no test notices.

Faults are those of Cosmic Ray. Its own runner starts a whole test run for each of them; here a process that has collected the tests
once is forked for each, and the fault is made in the copy. No file of the source is changed.
"""
