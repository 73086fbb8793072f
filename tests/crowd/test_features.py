"""Frames to numbers, against naive loops and drawings of known size."""

import os
from dataclasses import replace

import cv2
import numpy as np
import pytest

from activehuber.crowd import features
from activehuber.crowd.background import (
    Backgrounds,
    difference,
    emptiest,
    find_backgrounds,
    median_image,
    strongest_gradients,
    with_level,
)
from activehuber.crowd.features import (
    Described,
    FrameDescription,
    bumps,
    by_feet,
    describe_frames,
    feet_of,
    grid_of,
    in_cells,
    look_at,
    maps_of,
    rightward_flow,
)
from activehuber.crowd.frames import open_frames, write_video
from activehuber.crowd.scene import (
    LEAST_LEVELS,
    make_scene,
    perspective_line,
    shrink,
    working_shape,
)
from activehuber.runtime.messages import TableError


def silent(done, total):
    pass


def write_pngs(folder, images):
    """Frames without loss; None writes a file that is no image."""
    folder.mkdir()
    for number, image in enumerate(images, 1):
        encoded = b"no image" if image is None else cv2.imencode(".png", image)[1].tobytes()
        (folder / f"{number:04d}.png").write_bytes(encoded)
    return open_frames(folder)


def textured(rng, shape=(96, 128), low=60, high=200):
    """A smooth pattern of shape (h, w, 3)."""
    coarse = rng.uniform(low, high, (shape[0] // 6, shape[1] // 6, 3))
    return cv2.resize(coarse, shape[::-1], interpolation=cv2.INTER_CUBIC).clip(0, 255)


def grainy(image, rng, noise=3.0, gain=1.0):
    """The image as a camera takes it."""
    lit = gain * np.asarray(image, dtype=float) + rng.normal(0, noise, image.shape)
    return lit.round().clip(0, 255).astype(np.uint8)


def plain_look(foreground, **parts):
    """A look of which nothing but the foreground is known."""
    shape = foreground.shape
    zeros = np.zeros(shape, np.float32)
    mask = foreground.astype(np.uint8)
    look = FrameDescription(np.zeros(shape, np.uint8), zeros, zeros, mask, mask)
    return replace(look, **parts)


def overlap(found, truth):
    return np.sum(found & truth) / np.sum(found | truth)


# --- cells, perspective, shapes ---------------------------------------------------------


@pytest.mark.parametrize("shape", [(240, 320), (50, 70), (61, 83), (219, 351), (16, 16)])
def test_cells_equal_loops_over_pixels_and_lose_nothing(shape, rng):
    values = rng.uniform(0.0, 1.0, shape).astype(np.float32)
    grid = grid_of(shape)
    assert grid == tuple(max(1, round(side / 20)) for side in shape)

    def shares(side, parts):
        """How much of each pixel is in each cell, shape (parts, side)."""
        edges = np.linspace(0, side, parts + 1)
        out = np.zeros((parts, side))
        for k in range(parts):
            for i in range(side):
                out[k, i] = max(0.0, min(edges[k + 1], i + 1) - max(edges[k], i))
        return out

    expected = shares(shape[0], grid[0]) @ values @ shares(shape[1], grid[1]).T
    found = in_cells(np.stack([values, 2.0 * values]))
    np.testing.assert_allclose(found[0], expected, rtol=1e-4)
    np.testing.assert_allclose(found[1], 2.0 * found[0], rtol=1e-5)
    found = found[0]
    assert found.sum() == pytest.approx(values.sum(), rel=1e-5)


def described_of(looks, scene):
    """What is known of frames that were looked at."""
    maps = [maps_of(look, scene) for look in looks]
    feet = [by_feet(own, look.foreground) for own, look in zip(maps, looks, strict=True)]
    cells = np.stack([in_cells(own) for own in maps])
    return Described(np.arange(len(looks)), cells, np.stack(feet), np.empty((0, 3)))


@pytest.mark.parametrize("given", ["line", "map"])
def test_one_person_near_and_far_has_the_same_size_and_edges(given):
    """A rectangle drawn at two depths, as large as the perspective says at its feet."""
    heights = perspective_line(240, 320, 20, 80)
    if given == "map":  # taller on the right; both rectangles stand in the middle
        heights = heights * np.linspace(0.8, 1.2, 320)
    scene = make_scene(240, 320, perspective=heights)
    background, looks = np.full((240, 320, 3), 120, np.uint8), []
    for foot in (70, 220):
        tall = 20 + 60 * foot / 239
        image = background.copy()
        across = round(0.2 * tall)
        image[round(foot - tall) : foot, 160 - across : 160 + across] = 230
        looks.append(look_at(image, background, scene))
    near, far = described_of(looks, scene).measures(scene).totals
    # Blurred borders weigh more in a small figure; unweighted the areas differ by a factor 4.
    np.testing.assert_allclose(near, far, rtol=0.2)
    flat = make_scene(240, 320)
    totals = described_of(looks, flat).measures(flat).totals[:, 0]
    np.testing.assert_allclose(totals, [look.foreground.sum() for look in looks], rtol=1e-6)


def test_feet_are_where_an_upright_run_ends():
    mask = np.zeros((12, 6), np.uint8)
    mask[2:5, 1] = mask[7:10, 1] = mask[4:12, 3] = 1
    rows, expected = np.arange(12), np.tile(np.arange(12)[:, None], (1, 6))
    expected[2:5, 1], expected[7:10, 1], expected[4:12, 3] = 4, 9, 11
    np.testing.assert_array_equal(feet_of(mask), expected)
    sums = by_feet(mask[None].astype(np.float32), mask)[0]
    np.testing.assert_array_equal(sums, np.bincount(expected[mask > 0] // 4, minlength=3))
    assert len(rows) == 4 * len(sums)


def test_outline_and_areas_of_a_drawing():
    scene, mask = make_scene(240, 320), np.zeros((240, 320), bool)
    mask[40:80, 50:70] = mask[100:160, 200:230] = True
    apart = np.where(mask, 40.0, 0.0).astype(np.float32)
    maps = maps_of(plain_look(mask, apart=apart), scene)
    assert maps.shape == (8, 240, 320)
    assert maps[0].sum() == maps[1].sum() == mask.sum()
    assert maps[2].sum() == pytest.approx(0.5 * mask.sum())
    assert maps[3].sum() == (2 * 40 + 2 * 20 - 4) + (2 * 60 + 2 * 30 - 4)


def test_places_reach_into_each_other_and_cover_every_cell():
    for cells in (1, 3, 12, 16):
        weights = bumps(cells)
        assert weights.shape == (max(1, round(cells / 2.5)), cells)
        assert weights.max(axis=0).min() > 0.6
        np.testing.assert_allclose(weights, weights[::-1, ::-1], atol=1e-12)


def test_gradients_are_those_of_the_colour_with_the_largest(rng):
    colours = rng.normal(size=(20, 30, 3)).astype(np.float32)
    found = np.hypot(*strongest_gradients(colours))
    single = [np.hypot(*strongest_gradients(colours[..., [k] * 3])) for k in range(3)]
    np.testing.assert_allclose(found, np.max(single, axis=0), rtol=1e-6)


# --- the foreground ---------------------------------------------------------------------


@pytest.mark.parametrize("gain", [0.9, 1.0, 1.1])
@pytest.mark.parametrize("roi", [None, "half"])
def test_a_drawn_rectangle_is_found_at_any_exposure(gain, roi, rng):
    empty = textured(rng, (240, 320))
    empty[20:60, 200:300] = 255  # a window, as white as white can be
    drawn = empty.copy()
    truth = np.zeros((240, 320), bool)
    truth[90:170, 120:160] = True
    drawn[truth] = 0.4 * drawn[truth]
    inside = np.ones((240, 320), bool)
    if roi:
        inside[:, 140:] = False
    scene = make_scene(240, 320, roi=inside)
    look = look_at(grainy(drawn, rng, gain=gain), grainy(empty, rng, 0.0), scene)
    found = look.foreground > 0
    assert overlap(found, truth & inside) > 0.85
    assert np.mean(found & ~truth) < 0.01
    assert not np.any(found & ~inside)
    assert np.all(look.foreground >= look.surely) and look.surely.any()


def test_the_foreground_is_where_the_difference_is():
    background = np.full((60, 80, 3), 100, np.uint8)
    image = background.copy()
    image[20:40, 30:50] = 160
    look = look_at(image, background, make_scene(60, 80))
    rows, columns = np.nonzero(look.foreground)
    # As far out on one side as on the other.
    assert rows.min() - 20 == 39 - rows.max()
    assert columns.min() - 30 == 49 - columns.max()
    assert abs(rows.min() - 20) <= 1


def test_specks_go_and_squares_stay():
    mask = np.zeros((12, 12), np.uint8)
    mask[3:5, 3:5] = mask[0:2, 10:12] = mask[10:12, 0:2] = 1
    expected = mask.copy()
    mask[8, 8] = mask[6, :3] = mask[9, 3:7] = 1
    np.testing.assert_array_equal(features._without_specks(mask), expected)


def test_a_region_thinner_than_the_sampling_still_has_an_exposure(rng):
    empty = textured(rng, (60, 80))
    for rows, columns in ((np.s_[31:33], np.s_[:]), (np.s_[10:11], np.s_[20:21])):
        roi = np.zeros((60, 80), bool)
        roi[rows, columns] = True
        apart = difference(grainy(empty, rng, gain=1.2), grainy(empty, rng, 0.0), roi)[1]
        assert np.median(apart) < 12


def test_noise_sets_the_level(tmp_path, rng):
    empty = np.full((48, 64, 3), 120.0)
    for name, noise in (("quiet", 1.0), ("loud", 12.0)):
        frames = write_pngs(tmp_path / name, [grainy(empty, rng, noise) for _ in range(20)])
        scene = make_scene(48, 64)
        found = with_level(frames, scene, Backgrounds(np.array([1.0]), [grainy(empty, rng, 0)]))
        apart = difference(next(frames.each([3])).image, grainy(empty, rng, 0), scene.roi)[1]
        if name == "quiet":
            assert found.level == LEAST_LEVELS
        else:
            assert found.level == pytest.approx(4.0 * np.median(apart), rel=0.1)
            assert found.level > 1.5 * LEAST_LEVELS


def test_no_readable_frame_in_the_sample_leaves_the_least_level(tmp_path, rng):
    empty = np.full((48, 64, 3), 120.0)
    images = [None if k % 2 == 0 else grainy(empty, rng) for k in range(40)]
    frames = write_pngs(tmp_path / "half", images)
    backgrounds = find_backgrounds(frames, make_scene(48, 64), silent)
    assert with_level(frames, make_scene(48, 64), backgrounds).level == 20.0


# --- the empty scene --------------------------------------------------------------------


def figure_in(image, corner, rng, size=(40, 18)):
    """Someone with clothes, which have edges of their own."""
    out = image.copy()
    i, j = corner
    stripes = np.repeat(rng.uniform(0, 90, (size[0] // 4, 1, 3)), 4, axis=0)
    out[i : i + size[0], j : j + size[1]] = stripes
    return out


def test_someone_who_sat_there_most_of_the_time_is_not_part_of_the_scene(rng):
    wall = np.full((240, 320, 3), 170.0)
    sitting = figure_in(wall, (100, 150), rng)
    images = [grainy(sitting if k < 6 else wall, rng, 1.0) for k in range(10)]
    where = np.s_[100:140, 150:168]
    assert np.abs(median_image(images)[where] - 170.0).mean() > 60
    for order in (images, images[::-1]):
        found = emptiest(order)
        assert np.abs(found[where] - 170.0).mean() < 4
        assert np.abs(found - 170.0).mean() < 2


def test_someone_plain_before_a_shelf_is_not_the_shelf(rng):
    """Seen in two of ten images, and with fewer edges than what is behind."""
    shelf = textured(rng, (240, 320), 20, 240)
    coat = shelf.copy()
    coat[100:150, 150:175] = 40
    images = [grainy(coat if k in (3, 7) else shelf, rng, 1.0) for k in range(10)]
    found = emptiest(images)
    assert np.abs(found - shelf)[100:150, 150:175].mean() < 4
    assert np.abs(found - shelf).mean() < 2


@pytest.mark.parametrize("there", [(0, 1), (8, 9)])
def test_someone_there_while_the_light_changed_leaves_no_trace(there, rng):
    shelf = textured(rng, (240, 320), 60, 180)
    seen = figure_in(shelf, (100, 150), rng)
    gains = np.linspace(0.7, 1.3, 10)
    images = [grainy(seen if k in there else shelf, rng, 1.0, gains[k]) for k in range(10)]
    found = emptiest(images)
    found = found / np.median(found / shelf)
    assert np.abs(found - shelf)[100:140, 150:168].mean() < 3
    assert np.abs(found - shelf).mean() < 2


def test_one_image_is_its_own_scene(rng):
    image = grainy(textured(rng), rng)
    assert emptiest([image]) is image


def test_the_median_is_that_of_every_colour(rng):
    images = list(rng.integers(0, 256, (7, 5, 6, 3)).astype(np.uint8))
    np.testing.assert_array_equal(median_image(images), np.median(images, axis=0))


def walker_frames(rng, count, gains, shape=(60, 80)):
    """Someone walks to and fro over a still scene; the light is what `gains` says."""
    empty = textured(rng, shape)
    images = []
    for k in range(count):
        image = empty.copy()
        place = (7 * k) % (shape[1] - 10)
        image[20:45, place : place + 10] = 20
        images.append(grainy(image, rng, 2.0, gains[k]))
    return empty, images


def test_slow_light_is_followed_and_foreground_stays_the_walker(tmp_path, rng):
    gains = np.linspace(0.75, 1.25, 120)
    empty, images = walker_frames(rng, 120, gains)
    frames, scene = write_pngs(tmp_path / "frames", images), make_scene(60, 80)
    shares = []

    def report(done, total):
        shares.append((done, total))

    backgrounds = find_backgrounds(frames, scene, report, stretch=20, neighbours=1)
    assert shares == [(k, 6) for k in range(1, 7)]
    np.testing.assert_allclose(backgrounds.numbers, [10.5, 30.5, 50.5, 70.5, 90.5, 110.5])
    for number in (1, 60, 120):
        near = backgrounds.near(number)
        # Of about its own time: within the two stretches around it.
        assert np.median(near / empty) == pytest.approx(gains[number - 1], abs=0.14)
        look = look_at(images[number - 1], near, scene)
        truth = np.zeros((60, 80), bool)
        place = (7 * (number - 1)) % 70
        truth[20:45, place : place + 10] = True
        assert overlap(look.foreground > 0, truth) > 0.75


def test_a_place_that_is_busy_most_of_the_time_is_seen_between(tmp_path, rng):
    """In four of five stretches someone is there for 12 frames of 20, at 48 of 100 in all."""
    wall = np.full((240, 320, 3), 170.0)
    busy = figure_in(wall, (100, 150), rng)
    there = [k // 20 < 4 and k % 5 < 3 for k in range(100)]
    images = [grainy(busy if here else wall, rng, 1.0) for here in there]
    frames, where = write_pngs(tmp_path / "frames", images), np.s_[100:140, 150:168]
    medians = [median_image(images[k : k + 20]) for k in range(0, 100, 20)]
    assert np.abs(emptiest(medians)[where] - 170.0).mean() > 60
    found = find_backgrounds(frames, make_scene(240, 320), silent, stretch=20)
    assert np.abs(found.near(1)[where] - 170.0).mean() < 4


def test_a_known_empty_scene_has_a_say(tmp_path, rng):
    wall = np.full((240, 320, 3), 170.0)
    sitting = figure_in(wall, (100, 150), rng)
    frames = write_pngs(tmp_path / "frames", [grainy(sitting, rng, 1.0) for _ in range(3)])
    scene, where = make_scene(240, 320), np.s_[100:140, 150:168]
    alone = find_backgrounds(frames, scene, silent).near(1)
    helped = find_backgrounds(frames, scene, silent, grainy(wall, rng, 1.0)).near(1)
    assert np.abs(alone[where] - 170.0).mean() > 60
    assert np.abs(helped[where] - 170.0).mean() < 4


def test_a_folder_and_a_video_have_the_same_scene(tmp_path, rng):
    _, images = walker_frames(rng, 60, np.ones(60), (96, 128))
    write_video(tmp_path / "clip.avi", images, 5.0)
    film = open_frames(tmp_path / "clip.avi")
    # The very pixels of the video, so that nothing but the way of reading differs.
    folder = write_pngs(tmp_path / "frames", [frame.image for frame in film.each()])
    scene = make_scene(96, 128)
    found = [
        find_backgrounds(frames, scene, silent, stretch=25, sampled=11)
        for frames in (folder, film)
    ]
    assert len(found[0].images) == 2
    for left, right in zip(found[0].images, found[1].images, strict=True):
        np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(found[0].numbers, found[1].numbers)


def test_stretches_without_a_readable_frame_borrow_their_scene(tmp_path, rng):
    _, images = walker_frames(rng, 40, np.ones(40))
    images[10:20] = [None] * 10
    frames, scene = write_pngs(tmp_path / "frames", images), make_scene(60, 80)
    found = find_backgrounds(frames, scene, silent, stretch=10)
    np.testing.assert_allclose(found.numbers, [5.5, 25.5, 35.5])
    assert found.near(14) is found.images[0] and found.near(17) is found.images[1]


# --- the scene's settings ---------------------------------------------------------------


def test_large_frames_are_made_smaller_and_small_ones_stay():
    assert working_shape(240, 320) == (240, 320)
    assert working_shape(100, 150) == (100, 150)
    assert working_shape(1080, 1920) == (208, 370)
    assert working_shape(3, 5) == (16, 16)
    height, width = working_shape(20, 8000)
    assert height == 16 and width > 5000
    image = np.zeros((480, 640, 3), np.uint8)
    image[:240] = 200
    small = shrink(image, make_scene(480, 640))
    assert small.shape == (240, 320, 3) and small[:119].min() == 200 and small[121:].max() == 0


def test_region_and_perspective_are_brought_to_the_working_size():
    roi = np.zeros((480, 640), bool)
    roi[240:] = True
    scene = make_scene(480, 640, roi=roi, perspective=perspective_line(480, 640, 20, 60))
    assert scene.roi.shape == scene.person.shape == (240, 320)
    assert not scene.roi[:120].any() and scene.roi[120:].all()
    # In pixels of the working size, which has half of them a side.
    np.testing.assert_allclose(scene.heights[[0, -1]], [10.0, 30.0], rtol=0.01)
    assert scene.person[-1, 0] / scene.person[0, 0] == pytest.approx(3.0, rel=0.02)
    # A map of half the size is the same map.
    half = make_scene(480, 640, roi=roi, perspective=perspective_line(240, 320, 20, 60))
    np.testing.assert_allclose(half.person, scene.person, rtol=0.01)
    assert make_scene(480, 640).person is None
    np.testing.assert_array_equal(make_scene(480, 640).heights, np.ones(240))


def test_perspective_line_runs_from_top_to_bottom():
    line = perspective_line(5, 3, 10, 30)
    np.testing.assert_array_equal(line, np.repeat([[10.0], [15], [20], [25], [30]], 3, axis=1))


@pytest.mark.parametrize(
    "given, words",
    [
        ({"roi": np.zeros((240, 320), bool)}, "region of interest is empty"),
        ({"roi": np.ones((320, 240), bool)}, "region of interest is 240 × 320, but the frames"),
        ({"roi": np.ones((0, 0), bool)}, "region of interest is 0 × 0, but the frames"),
        ({"roi": np.ones((240, 320, 3), bool)}, "region of interest is 3 × 320 × 240"),
        ({"perspective": np.ones((4, 4))}, "perspective map is 4 × 4, but the frames"),
        ({"perspective": np.zeros((240, 320))}, "all above 0"),
        ({"perspective": np.full((240, 320), np.nan)}, "all above 0"),
    ],
)
def test_what_cannot_be_a_region_or_a_perspective_is_said_in_one_line(given, words):
    with pytest.raises(TableError, match=words) as caught:
        make_scene(240, 320, **given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ends", [(0, 5), (5, -1), (np.nan, 5), (5, np.inf)])
def test_people_without_height_are_refused(ends):
    with pytest.raises(TableError, match="both above 0"):
        perspective_line(10, 10, *ends)


# --- motion -----------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [3, -4])
def test_flow_has_the_sign_and_the_size_of_a_shift(shift, rng):
    grey = textured(rng, (120, 160))[..., 0].astype(np.uint8)
    flow = rightward_flow(grey, np.roll(grey, shift, axis=1))
    assert flow.shape == grey.shape
    assert np.median(flow[:, 12:-12]) == pytest.approx(shift, abs=0.25)
    assert np.abs(rightward_flow(grey, grey)).max() < 0.1


def test_flow_of_the_smallest_frame_there_is(rng):
    grey = textured(rng, working_shape(2, 2))[..., 0].astype(np.uint8)
    assert rightward_flow(grey, grey).shape == (16, 16)


def test_motion_tells_left_from_right():
    scene = make_scene(60, 80, motion=True)
    mask, flow = np.zeros((60, 80), bool), np.zeros((60, 80), np.float32)
    steep = np.zeros((60, 80), np.float32)
    mask[10:30, 5:15] = mask[30:50, 50:60] = mask[5:9, 70:79] = True
    flow[10:30, 5:15], flow[30:50, 50:55], flow[5:9, 70:79] = -2.0, 2.0, 0.3
    flow[55:, :] = 9.0  # moves, but is no foreground
    steep[10:30, 5] = 500.0
    left, left_edges, right, right_edges = maps_of(
        plain_look(mask, strength=steep), scene, flow
    )[8:].sum(axis=(1, 2))
    assert (left, right) == (200, 100)
    assert (left_edges, right_edges) == (20, 0)


def test_motion_of_a_walk_to_the_right(tmp_path, rng):
    empty, images = textured(rng, (60, 80)), []
    for k in range(6):
        image = empty.copy()
        image[20:45, 10 + 3 * k : 25 + 3 * k] = textured(
            np.random.default_rng(1), (25, 15), 0, 90
        )
        images.append(grainy(image, rng, 1.0))
    images.insert(3, None)
    frames = write_pngs(tmp_path / "frames", images)
    scene = make_scene(60, 80, motion=True)
    backgrounds = Backgrounds(np.array([1.0]), [grainy(empty, rng, 0.0)])
    found = describe_frames(frames, scene, backgrounds, silent)
    left, _, right, _ = found.feet[:, 8:].sum(axis=2).T
    assert left[0] == right[0] == 0.0  # nothing to compare the first frame with
    # Frame 4 cannot be read; frame 5 is compared with frame 3.
    moved = [1, 2, 4, 5, 6]
    assert np.isnan(left[3]) and np.all(right[moved] > 150)
    assert np.all(left[moved] < 0.2 * right[moved])


# --- all frames -------------------------------------------------------------------------


@pytest.fixture
def three_threads():
    """A number of OpenCV's threads that nobody else sets, and that is to stay."""
    before = cv2.getNumThreads()
    cv2.setNumThreads(3)
    yield
    after = cv2.getNumThreads()
    cv2.setNumThreads(before)
    assert after == 3


def test_unreadable_frames_leave_a_row_of_nan_and_a_problem(tmp_path, rng):
    empty, images = walker_frames(rng, 7, np.ones(7))
    images[0], images[4] = None, np.zeros((40, 30, 3), np.uint8)
    frames, scene = write_pngs(tmp_path / "frames", images), make_scene(60, 80)
    backgrounds = Backgrounds(np.array([1.0]), [grainy(empty, rng, 0.0)])
    told = []
    found = describe_frames(frames, scene, backgrounds, lambda done, total: told.append(done))
    np.testing.assert_array_equal(found.numbers, np.arange(1, 8))
    assert told == list(range(1, 8))
    for values in (found.cells, found.feet):
        assert np.isnan(values[[0, 4]]).all()
        assert np.isfinite(values[[1, 2, 3, 5, 6]]).all()
    np.testing.assert_array_equal(found.readable, [0, 1, 1, 1, 0, 1, 1])
    assert len(found.problems) == 2
    assert "0001.png" in found.problems[0] and "30 × 40" in found.problems[1]


def test_any_number_of_threads_gives_the_same_rows(tmp_path, rng, monkeypatch, three_threads):
    empty, images = walker_frames(rng, 30, np.linspace(0.9, 1.1, 30))
    frames, scene = write_pngs(tmp_path / "frames", images), make_scene(60, 80, motion=True)
    backgrounds = Backgrounds(np.array([1.0]), [grainy(empty, rng, 0.0)])
    found = []
    for cores in (1, 2, 7):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=cores: range(n), raising=False)
        found.append(describe_frames(frames, scene, backgrounds, silent).feet)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    assert len(np.unique(found[0].reshape(30, -1), axis=0)) == 30


def test_an_error_in_a_thread_is_not_lost(tmp_path, rng, three_threads):
    _, images = walker_frames(rng, 3, np.ones(3))
    frames = write_pngs(tmp_path / "frames", images)
    with pytest.raises(IndexError):
        wrong = Backgrounds(np.array([1.0]), [np.zeros((9, 9, 3), np.uint8)])
        describe_frames(frames, make_scene(60, 80), wrong, silent)


def test_the_overlay_marks_the_foreground_and_nothing_else():
    image = np.full((40, 50, 3), 100, np.uint8)
    mask = np.zeros((40, 50), bool)
    mask[10:20, 10:30] = True
    tinted = features.overlay(image, plain_look(mask))
    assert np.all(tinted[~mask] == 100) and np.all(np.any(tinted[mask] != 100, axis=1))
    np.testing.assert_array_equal(tinted[15, 20], [80, 130, 177])
    np.testing.assert_array_equal(tinted[10, 20], [0, 60, 200])
    assert np.all(image == 100)
