"""The paper, table by table: `activehuber reproduce`.

One module an experiment; each turns a `Run` into an `Outcome`:

    protocol -> outcome -> data -> solver, curve, noisy_labels, uci, crowd, pets -> command
"""
