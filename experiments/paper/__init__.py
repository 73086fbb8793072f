"""The paper, table by table: `python -m experiments.paper`.

One module an experiment; each turns a `Run` into an `Outcome`:

    protocol -> outcome -> data -> solver, curve, noisy_labels, uci, crowd, pets -> command
"""
