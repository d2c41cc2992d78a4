"""The benchmark: the same load on Naiad and on the real C++ Triton, in one run on one machine. `python -m bench --help`.

A table is only fair within itself: figures of two runs, or of two machines, are not to be compared.
"""
