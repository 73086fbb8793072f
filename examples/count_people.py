"""Count people on a camera that never was: train, count a video, find the wrong counts.

    python examples/count_people.py --output demo-crowd

A synthetic plaza is drawn; 60 of its 400 frames are counted, six of these counts are wrong. The
page to look at is demo-crowd/camera/report.html.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from activehuber.crowd.command import count, train
from activehuber.crowd.frames import write_images, write_video
from activehuber.crowd.synthetic import synthetic_camera
from activehuber.data.tables import write_file, write_files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("demo-crowd"))
    folder = parser.parse_args().output
    clip = synthetic_camera(500, people=(2, 20), random_state=0)
    write_images(folder / "frames", (clip.image(i) for i in range(400)))
    write_video(folder / "later.avi", [clip.image(i) for i in range(400, 500)], clip.fps)

    rng = np.random.default_rng(0)
    counted = np.sort(rng.choice(400, 60, replace=False))
    wrong = rng.choice(counted, 6, replace=False)
    given = clip.counts.astype(float)
    given[wrong] = rng.integers(30, 60, len(wrong))
    with (folder / "counts.csv").open("w", newline="") as file:
        rows = [(i + 1, int(given[i])) for i in counted]
        csv.writer(file).writerows([("frame", "count"), *rows])

    found = train(folder / "frames", folder / "counts.csv")
    write_files(folder / "camera", found.files(), force=True)
    planted = set((wrong + 1).tolist())
    named = set(found.counted.doubted.tolist())
    print(f"{len(planted & named)} of {len(planted)} wrong counts found,", end=" ")
    print(f"{len(named - planted)} others flagged")
    rest = np.setdiff1d(np.arange(400), counted)
    error = np.abs(found.counted.columns["count"] - clip.counts[:400])[rest].mean()
    constant = np.abs(clip.counts[:400] - np.median(given[counted]))[rest].mean()
    print(f"mean error on uncounted frames {error:.2f} (the best constant: {constant:.2f})")

    later, _, page = count(
        folder / "camera" / "model.skops", folder / "later.avi", page=True, table="later.csv"
    )
    write_file(folder / "later.csv", later.csv())
    write_file(folder / "later.html", page.encode())
    error = np.abs(later.columns["count"] - clip.counts[400:]).mean()
    print(f"mean error on the video {error:.2f}")
    print(folder / "camera" / "report.html")


if __name__ == "__main__":
    main()
