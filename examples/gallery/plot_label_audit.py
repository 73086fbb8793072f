"""
Audit the labels of a table
===========================

scikit-learn's diabetes table with mistakes as people make them: a zero too much, a minus sign,
another unit. A fifth of the labels is missing. ``audit`` needs no parameter; it sorts the
labels by their quality, flags the worst and says why.
"""

# %%
# A table with known faults
# -------------------------
# Words, numbers and gaps are taken as they are.

import matplotlib.pyplot as plt

from activehuber import audit
from activehuber.data.datasets import make_corrupted_diabetes

corrupted = make_corrupted_diabetes()
table = corrupted.frame.set_index("patient")
table.iloc[:5, -6:]

# %%
# The audit
# ---------

found = audit(table.drop(columns="progression"), table["progression"], ids=table.index)
labels = found.labels
print(f"{found.summary.n_flagged} of {found.summary.n_labelled} labels are flagged")

# %%
# The worst labels come first.

labels[["patient", "given", "expected", "lower", "upper", "quality"]].head(8).round(2)

# %%
# Every label has its reason in words.

for patient, reason in labels[["patient", "reason"]].head(3).itertuples(index=False):
    print(f"{patient}: {reason}")

# %%
# The labels beside what was expected of them
# -------------------------------------------
# We know which labels had been corrupted, and colour them by the kind of mistake. Beyond ±400
# the scale is logarithmic, since a zero too much is far away from everything else. The minus
# sign that was missed stands before a small number: the label is no further off than some right
# ones.

kinds = dict(zip(table.index, corrupted.kinds, strict=True))
labels["kind"] = [kinds[patient] for patient in labels["patient"]]
flagged = labels["verdict"] == "flagged"

fig, ax = plt.subplots(figsize=(9, 5), layout="constrained")
styles = {
    "": ("right label", "#2166ac", "o", 14),
    "a zero too much": ("a zero too much", "#b35806", "s", 34),
    "a minus sign": ("a minus sign", "#762a83", "v", 34),
    "another unit": ("another unit", "#1b7837", "^", 34),
}
for kind, (name, colour, marker, size) in styles.items():
    rows = labels[labels["kind"] == kind]
    ax.scatter(
        rows["expected"],
        rows["given"],
        s=size,
        color=colour,
        marker=marker,
        alpha=0.75,
        label=name,
    )
ring = {"facecolor": "none", "edgecolor": "k", "lw": 0.9}
ax.scatter(
    labels["expected"][flagged], labels["given"][flagged], s=110, **ring, label="flagged"
)
ends = [labels["expected"].min(), labels["expected"].max()]
ax.plot(ends, ends, color="0.3", lw=0.8, zorder=0)
ax.set_yscale("symlog", linthresh=400)
ticks = [-200, 0, 200, 400, 1000, 3000]
ax.set_yticks(ticks, [str(tick) for tick in ticks])
ax.set_yticks([], minor=True)
ax.set(xlabel="expected from the other rows", ylabel="label as given")
n_rightly = int((flagged & (labels["kind"] != "")).sum())
n_wrongly = int((flagged & (labels["kind"] == "")).sum())
ax.set_title(
    f"{n_rightly} of {corrupted.corrupted.sum()} corrupted labels are flagged, "
    f"{n_wrongly} right ones"
)
ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)
plt.show()
