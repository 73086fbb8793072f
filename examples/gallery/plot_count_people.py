"""
Count people on a camera that never was
=======================================

A synthetic plaza has 300 frames. Somebody counted the people in 50 of them and got five wrong.
From these counts and all frames come a count with an interval for every frame, and the list of
the flagged counts. Needs the extra ``crowd``.
"""

# %%
# The camera
# ----------
# ``synthetic_camera`` knows the true count of every frame.

import csv
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from activehuber.crowd.command import train
from activehuber.crowd.frames import write_images
from activehuber.crowd.synthetic import synthetic_camera

clip = synthetic_camera(300, people=(2, 20), random_state=0)
rng = np.random.default_rng(0)
counted = np.sort(rng.choice(len(clip), 50, replace=False))
wrong = np.sort(rng.choice(counted, 5, replace=False))
given = clip.counts.copy()
given[wrong] = rng.integers(30, 50, len(wrong))

# %%
# From frames to counts
# ---------------------
# The same as ``activehuber crowd train frames/ counts.csv`` from the command line. Frames are
# numbered from 1.

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    write_images(folder / "frames", clip.images())
    with (folder / "counts.csv").open("w", newline="") as file:
        rows = [(number + 1, int(given[number])) for number in counted]
        csv.writer(file).writerows([("frame", "count"), *rows])
    found = train(folder / "frames", folder / "counts.csv").counted

print("flagged counts, worst first:", found.doubted.tolist())
print("wrong counts:               ", (wrong + 1).tolist())
columns = found.columns
rest = np.setdiff1d(np.arange(len(clip)), counted)
error = np.abs(columns["count"] - clip.counts)[rest].mean()
held = (columns["lower"] <= clip.counts) & (clip.counts <= columns["upper"])
print(f"uncounted frames: mean error {error:.2f}, {held[rest].mean():.0%} within the interval")

# %%
# Two frames, and all counts
# --------------------------
# The intervals are wide: they come from whole stretches of frames that were left out, which is
# harder than to count a frame between two counted ones.

fig = plt.figure(figsize=(10, 6.4), layout="constrained")
panels = fig.subplot_mosaic([["few", "many"], ["time", "time"]], height_ratios=(1.15, 1))
shown = {"few": rest[np.argmin(clip.counts[rest])], "many": rest[np.argmax(clip.counts[rest])]}
for panel, frame in shown.items():
    panels[panel].imshow(clip.image(int(frame))[..., ::-1])  # BGR to RGB
    panels[panel].axis("off")
    estimate, truth = columns["count"][frame], clip.counts[frame]
    panels[panel].set_title(f"frame {frame + 1}: {estimate:.1f} ({truth:.0f} are there)")
ax, time = panels["time"], np.arange(1, len(clip) + 1)
ax.fill_between(time, columns["lower"], columns["upper"], color="#2166ac", alpha=0.2, lw=0)
ax.plot(time, clip.counts, color="0.6", lw=3, label="truth")
ax.plot(time, columns["count"], color="#2166ac", lw=1.3, label="estimate, with 90 % interval")
flagged = found.doubted - 1
kept = np.setdiff1d(counted, flagged)
ax.plot(kept + 1, given[kept], "o", ms=4, color="#1b7837", label="counted by hand")
ax.plot(flagged + 1, given[flagged], "x", ms=8, mew=2, color="#b35806", label="flagged")
ax.set(xlabel="frame", ylabel="people", xlim=(1, len(clip)), ylim=(0, None))
ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)
plt.show()
