"""The machine's GPUs and CPUs: what there is, who runs where, and the binding of threads to CPUs."""
