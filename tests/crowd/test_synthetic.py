"""The synthetic camera: true counts, frames that can be drawn again, a world that holds."""

import itertools

import cv2
import numpy as np
import pytest

from activehuber.crowd import synthetic as module
from activehuber.crowd.frames import open_frames, write_images
from activehuber.crowd.synthetic import synthetic_camera

# Nothing but people differs from the background.
CLEAN = {"shadows": False, "light_drift": 0.0, "noise": 0.0}


@pytest.fixture(scope="module")
def clip():
    return synthetic_camera(300, random_state=3)


# --- counts -----------------------------------------------------------------------------


def test_shapes_and_sums(clip):
    assert len(clip) == 300 and clip.fps == 5.0
    assert clip.counts.shape == clip.left.shape == clip.right.shape == (300,)
    np.testing.assert_array_equal(clip.counts, clip.left + clip.right)
    assert min(clip.left.max(), clip.right.max()) >= 3
    assert clip.roi.shape == clip.perspective.shape == (240, 320)
    assert clip.roi.dtype == bool and 0.4 < clip.roi.mean() < 0.8
    assert clip.background.shape == clip.image(0).shape == (240, 320, 3)
    assert clip.image(0).dtype == np.uint8


@pytest.mark.parametrize("people", [(2, 30), (2, 8), (0, 3), (5, 5), (0, 0)])
@pytest.mark.parametrize("seed", range(4))
def test_counts_stay_between_their_limits(people, seed):
    clip = synthetic_camera(250, people=people, random_state=seed)
    assert people[0] <= clip.counts.min() and clip.counts.max() <= people[1]
    # It is not the limits alone that make it so.
    assert np.ptp(clip.counts) >= 0.6 * (people[1] - people[0])


def test_counts_change_slowly_and_early_frames_differ_from_late_ones():
    gaps = []
    for seed in range(6):
        counts = synthetic_camera(400, random_state=seed).counts
        assert np.abs(np.diff(counts)).max() <= 5
        assert np.mean(np.abs(np.diff(counts))) < 1
        gaps.append(abs(counts[:100].mean() - counts[-100:].mean()))
    assert np.median(gaps) > 4


def test_a_person_counts_while_its_middle_is_in_the_region(clip):
    for walkers, count in itertools.islice(
        zip(clip.walks, clip.counts, strict=True), 0, 300, 20
    ):
        rows = walkers["y"].round().astype(int)
        tall = walkers["tall"] * clip.perspective[np.clip(rows, 0, 239), 0]
        middle = np.rint(walkers["y"] - tall / 2).astype(int)
        column = np.rint(walkers["x"]).astype(int)
        seen = (column >= 0) & (column < 320)
        # A row of the person's height may be rounded one way or the other.
        assert abs(clip.roi[middle[seen], column[seen]].sum() - count) <= 1


def test_people_head_where_they_go(clip):
    moved = 0
    for before, after in itertools.pairwise(clip.walks):
        _, i, j = np.intersect1d(before["who"], after["who"], return_indices=True)
        step = after["x"][j] - before["x"][i]
        same = before["heading"][i] == after["heading"][j]
        assert np.all(step[same] * before["heading"][i][same] >= 0)
        moved += np.sum(step != 0)
    assert moved > 1000


def walker(**fields):
    one = np.zeros(1, dtype=module.WALKER)
    usual = {"x": 150.0, "y": 130.0, "tall": 1.0, "heading": 1.0, "speed": 0.8}
    for name, value in {**usual, "until_pause": np.inf, **fields}.items():
        one[name] = value
    return one


def test_who_must_not_leave_turns_round_and_who_must_not_enter_waits(clip):
    edge = float(np.flatnonzero(clip.roi[100]).max())
    before = walker(x=edge - 12)
    free = module._step(before, clip.scene, 1.0, (0, 9))
    assert free["x"] > edge + 12 and free["heading"] == 1
    kept = module._step(before, clip.scene, 1.0, (1, 9))
    assert kept["x"] == before["x"] and kept["heading"] == -1
    outside = walker(x=edge + 25, heading=-1.0)
    assert module._step(outside, clip.scene, 1.0, (0, 9))["x"] < edge
    held = module._step(outside, clip.scene, 1.0, (0, 0))
    assert held["x"] == outside["x"] and held["heading"] == -1


def test_people_do_not_stick_to_the_front_or_the_back(clip):
    low, high = module._walkable(clip.scene)
    for y, drift in ((low + 1, -0.5), (high - 1, 0.5)):
        after = module._step(walker(y=y, drift=drift), clip.scene, 1.0, (0, 9))
        assert low <= after["y"][0] <= high and after["drift"][0] == -drift


def test_some_stand_still_for_a_while():
    def resting(standing):
        clip = synthetic_camera(150, standing=standing, random_state=1)
        still = total = 0
        for before, after in itertools.pairwise(clip.walks):
            _, i, j = np.intersect1d(before["who"], after["who"], return_indices=True)
            still += np.sum(before["x"][i] == after["x"][j])
            total += len(i)
        return still / total

    assert resting(0.0) < 0.02
    assert 0.02 < resting(0.3) < resting(1.0)


# --- frames -----------------------------------------------------------------------------


def test_any_frame_can_be_drawn_again(clip):
    again = synthetic_camera(300, random_state=3)
    np.testing.assert_array_equal(again.counts, clip.counts)
    np.testing.assert_array_equal(again.image(200), clip.image(200))
    np.testing.assert_array_equal(clip.image(0), next(clip.images()))
    other = synthetic_camera(300, random_state=4)
    assert not np.array_equal(other.counts, clip.counts)
    assert not np.array_equal(other.background, clip.background)
    for position in (-1, 300):
        with pytest.raises(IndexError, match="there are 300 frames"):
            clip.image(position)


def test_nobody_there_is_the_background():
    clip = synthetic_camera(3, people=(0, 0), **CLEAN)
    for image in clip.images():
        np.testing.assert_array_equal(image, clip.background)


@pytest.mark.parametrize("row", [90, 130, 180, 205])
@pytest.mark.parametrize("tall", [0.85, 1.1])
def test_a_person_is_where_and_as_large_as_said(row, tall):
    clip = synthetic_camera(2, people=(1, 1), **CLEAN)
    for phase in np.linspace(0, 6, 7):
        one = walker(x=150.3, y=row, tall=tall, phase=phase, heading=-1.0)
        drawn = module._draw(clip.scene, one, clip.clothes, shadows=False)
        rows, columns = np.nonzero(np.any(drawn != clip.scene.background, axis=2))
        wanted = tall * clip.perspective[row, 150]
        assert abs(rows.max() - row) <= 2
        assert abs((rows.max() - rows.min()) / wanted - 1) < 0.1
        assert abs(columns.mean() - 150.3) < 0.15 * wanted
        assert np.ptp(columns) < 0.6 * wanted


def test_people_in_front_hide_those_behind():
    clip = synthetic_camera(2, people=(2, 2), **CLEAN)
    two = np.concatenate([walker(who=0, x=120, y=150), walker(who=1, x=122, y=156)])
    both = module._draw(clip.scene, two, clip.clothes, shadows=False)
    swapped = module._draw(clip.scene, two[::-1], clip.clothes, shadows=False)
    np.testing.assert_array_equal(both, swapped)
    front = module._draw(clip.scene, two[1:], clip.clothes, shadows=False)
    chest = np.s_[118:128, 121:124]
    np.testing.assert_array_equal(both[chest], front[chest])
    assert not np.array_equal(both, front)


def test_objects_hide_those_behind():
    clip = synthetic_camera(2, people=(1, 1), **CLEAN)
    row, mask = clip.scene.objects[1]
    rows, columns = np.nonzero(mask)
    for offset, hidden in ((-4, True), (4, False)):
        one = walker(x=columns.mean(), y=row + offset)
        drawn = module._draw(clip.scene, one, clip.clothes, shadows=False)
        same = np.array_equal(drawn[rows, columns], clip.scene.background[rows, columns])
        assert same == hidden


def test_shadows_darken_the_floor_alone():
    options = CLEAN | {"shadows": True}
    with_shadows = synthetic_camera(40, people=(8, 9), **options)
    without = synthetic_camera(40, people=(8, 9), **CLEAN)
    lit, dim = without.image(30).astype(int), with_shadows.image(30).astype(int)
    assert np.all(dim <= lit + 1)
    darker = (lit - dim).max(axis=2) > 10
    assert 0.003 < darker.mean() < 0.2


def test_light_drifts_slowly_and_as_far_as_asked():
    clip = synthetic_camera(200, people=(0, 0), light_drift=0.3, noise=0.0)
    medium = clip.background.mean()
    light = np.array([image.mean() for image in clip.images()]) / medium
    assert 0.65 < light.min() < 0.8 and 1.15 < light.max() < 1.35
    assert np.abs(np.diff(light)).max() < 0.1


def test_noise_is_as_strong_as_asked_and_new_in_each_frame():
    clip = synthetic_camera(3, people=(0, 0), light_drift=0.0, noise=5.0)
    found = [image.astype(float) - clip.background for image in clip.images()]
    for grain in found:
        assert abs(grain.std() - 5.0) < 0.3 and abs(grain.mean()) < 0.2
    assert abs(np.corrcoef(found[0].ravel(), found[1].ravel())[0, 1]) < 0.05


@pytest.mark.parametrize("perspective", [0.25, 0.6, 1.0])
def test_perspective(perspective):
    tall = synthetic_camera(1, perspective=perspective).perspective
    np.testing.assert_array_equal(tall, np.repeat(tall[:, :1], 320, axis=1))
    back = int(np.ceil(module.FLOOR_TOP * 240))
    assert abs(tall[back, 0] / tall[-1, 0] - perspective) < 0.01
    assert np.all(np.diff(tall[:, 0]) >= 0) and tall.min() > 0


@pytest.mark.parametrize(("height", "width"), [(48, 48), (288, 384), (90, 400), (300, 120)])
def test_other_sizes_and_rates(height, width):
    clip = synthetic_camera(30, height=height, width=width, people=(2, 8), fps=1.0)
    assert clip.image(29).shape == (height, width, 3)
    assert clip.counts.min() >= 2 and clip.counts.max() <= 8


def test_the_problem_is_fair_but_not_trivial(clip):
    positions = np.arange(0, 300, 5)
    weight = clip.roi / clip.perspective**2
    area = []
    for position in positions:
        lit = clip.image(position).astype(float)
        lit *= clip.background.mean() / lit.mean()
        differs = np.abs(cv2.blur(lit - clip.background, (3, 3))).max(axis=2) > 18
        area.append(float(np.sum(weight * differs)))
    likeness = np.corrcoef(area, clip.counts[positions])[0, 1]
    assert 0.8 < likeness < 0.999


def test_frames_are_read_back_from_a_folder(tmp_path):
    clip = synthetic_camera(4, random_state=2)
    assert write_images(tmp_path / "frames", clip.images(), quality=95) == 4
    frames = open_frames(tmp_path / "frames")
    assert frames.numbers == (1, 2, 3, 4)
    error = next(frames.each([3])).image.astype(float) - clip.image(2)
    assert np.sqrt(np.mean(error**2)) < 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_frames": 0},
        {"height": 40},
        {"width": 0},
        {"people": (5, 4)},
        {"people": (-1, 4)},
        {"fps": 0.0},
        {"perspective": 0.0},
        {"perspective": 1.5},
        {"light_drift": 1.0},
        {"standing": 1.1},
        {"noise": -1.0},
    ],
)
def test_arguments_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        synthetic_camera(**wrong)
