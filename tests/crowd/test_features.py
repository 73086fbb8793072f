"""Frames to numbers, against scikit-image, naive loops and drawings of known size."""

import os
from dataclasses import replace

import cv2
import numpy as np
import pytest
from skimage.feature import graycomatrix, graycoprops, local_binary_pattern

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
    FrameDescription,
    cells,
    co_occurrence,
    describe_frames,
    look_at,
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
    look = FrameDescription(np.zeros(shape, np.uint8), zeros, zeros, zeros, mask, mask)
    return replace(look, **parts)


def overlap(found, truth):
    return np.sum(found & truth) / np.sum(found | truth)


# --- textures ---------------------------------------------------------------------------


def test_binary_patterns_equal_those_of_scikit_image(rng):
    """Blown up by 5, a circle of radius 5 meets the middle or inside of all 8 neighbours."""
    # Neighbours are all different: where they are equal, interpolation decides by rounding.
    grey = (np.argsort(rng.random((12, 17)).ravel()).reshape(12, 17)).astype(np.uint8)
    large = np.kron(np.pad(grey, 1, mode="edge"), np.ones((5, 5), np.uint8))
    expected = local_binary_pattern(large, 8, 5, "uniform")[2::5, 2::5][1:-1, 1:-1]
    found = features.binary_patterns(grey)
    inner = np.s_[1:-1, 1:-1]
    np.testing.assert_array_equal(found[inner], expected[inner])
    assert set(np.unique(found)) == set(range(10))


def test_binary_patterns_of_equal_neighbours_and_at_the_border(rng):
    grey = rng.integers(0, 3, (9, 11)).astype(np.uint8)
    found = features.binary_patterns(grey)
    ring = [(0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)]
    for i in range(9):
        for j in range(11):
            near = [(min(max(i + a, 0), 8), min(max(j + b, 0), 10)) for a, b in ring]
            bright = [int(grey[place]) >= int(grey[i, j]) for place in near]
            changes = sum(bright[k] != bright[k - 1] for k in range(8))
            assert found[i, j] == (sum(bright) if changes <= 2 else 9)


def texture_oracle(grey):
    """Homogeneity, energy (sum of squares) and entropy in four directions, shape (4, 3)."""
    angles = [0.0, np.pi / 4, np.pi / 2, 3 * np.pi / 4]
    pairs = graycomatrix(grey // 16, [1], angles, levels=16, normed=True)
    share = pairs[:, :, 0]
    logs = np.log(np.where(share > 0, share, 1.0))
    columns = [graycoprops(pairs, kind)[0] for kind in ("homogeneity", "ASM")]
    return np.stack([*columns, -np.sum(share * logs, axis=(0, 1))], axis=1)


def test_co_occurrence_equals_that_of_scikit_image(rng):
    grey = textured(rng, (30, 42))[..., 0].astype(np.uint8)
    found = co_occurrence(grey, np.ones(grey.shape, bool))
    np.testing.assert_allclose(found, texture_oracle(grey), rtol=1e-12)
    # The directions differ, so that mixing them up would show.
    assert len(np.unique(found.round(6), axis=0)) == 4


def test_co_occurrence_in_a_mask_is_that_of_the_part_cut_out(rng):
    grey = textured(rng, (30, 42))[..., 0].astype(np.uint8)
    inside = np.zeros(grey.shape, bool)
    inside[5:22, 11:40] = True
    expected = texture_oracle(np.ascontiguousarray(grey[5:22, 11:40]))
    np.testing.assert_allclose(co_occurrence(grey, inside), expected, rtol=1e-12)
    np.testing.assert_array_equal(co_occurrence(grey, np.zeros_like(inside)), np.zeros((4, 3)))


def test_patterns_are_counted_in_coarse_cells_of_the_foreground(rng):
    scene = make_scene(100, 170, perspective=perspective_line(100, 170, 10, 30))
    inside = np.zeros((100, 170), bool)
    inside[20:70, 60:130] = True
    grey = rng.integers(0, 256, (100, 170)).astype(np.uint8)
    found = features.describe_texture(plain_look(inside, grey=grey), scene)
    codes, expected = features.binary_patterns(grey), np.zeros((1, 2, 10))
    for i, j in np.argwhere(inside):
        expected[0, int(j >= 85), codes[i, j]] += 1.0 / scene.person[i, j] ** 2
    np.testing.assert_allclose(found[0], expected.ravel(), rtol=1e-9)
    np.testing.assert_allclose(np.stack(found[1:], axis=1), co_occurrence(grey, inside))


# --- cells, perspective, shapes ---------------------------------------------------------


@pytest.mark.parametrize("shape", [(240, 320), (50, 70), (61, 83), (219, 351), (16, 16)])
@pytest.mark.parametrize("pixels", [20, 80])
def test_cells_equal_loops_over_pixels_and_lose_nothing(shape, pixels, rng):
    values = rng.uniform(0.0, 1.0, shape)
    grid = [max(1, round(side / pixels)) for side in shape]

    def shares(side, parts):
        """How much of each pixel is in each cell, shape (parts, side)."""
        edges = np.linspace(0, side, parts + 1)
        out = np.zeros((parts, side))
        for k in range(parts):
            for i in range(side):
                out[k, i] = max(0.0, min(edges[k + 1], i + 1) - max(edges[k], i))
        return out

    expected = shares(shape[0], grid[0]) @ values @ shares(shape[1], grid[1]).T
    found = cells(values, pixels)
    np.testing.assert_allclose(found, expected.ravel(), rtol=1e-4)
    assert found.sum() == pytest.approx(values.sum(), rel=1e-5)


def test_one_person_near_and_far_has_the_same_size_and_edges():
    """A rectangle drawn at two depths, as large as the perspective says."""
    scene = make_scene(240, 320, perspective=perspective_line(240, 320, 20, 80))
    background = np.full((240, 320, 3), 120, np.uint8)
    found = []
    for middle in (60, 180):
        person = 20 + 60 * middle / 239
        image = background.copy()
        half, across = round(0.5 * person), round(0.2 * person)
        image[middle - half : middle + half, 160 - across : 160 + across] = 230
        look = look_at(image, background, scene)
        size, edges = features.describe_size(look, scene), features.describe_edges(look, scene)
        area, perimeter, length = size[3][0], size[4][0], edges[0].sum()
        found.append([area, perimeter, length])
    # Blurred borders weigh more in a small figure; unweighted the areas differ by a factor 3.4.
    np.testing.assert_allclose(found[0], found[1], rtol=0.15)
    flat = make_scene(240, 320)
    assert features.describe_size(look, flat)[3][0] == pytest.approx(np.sum(look.foreground))


def test_size_knows_perimeter_and_blobs():
    scene = make_scene(240, 320)
    mask = np.zeros((240, 320), bool)
    mask[40:80, 50:70] = True
    mask[100:160, 200:230] = True
    mask[200:204, 100:104] = True  # a speck
    blocks = features.describe_size(plain_look(mask), scene)
    area, perimeter, ratio, blobs, directions = (block for block in blocks[3:])
    outline = (2 * 40 + 2 * 20 - 4) + (2 * 60 + 2 * 30 - 4) + 12
    assert area[0] == pytest.approx(mask.sum()) and perimeter[0] == outline
    assert ratio[0] == pytest.approx(outline / mask.sum())
    assert blobs[0] == 2
    assert directions.sum() == pytest.approx(outline)
    # Upright sides are longer, and both of them go to the same direction.
    assert directions[0] == pytest.approx(2 * (38 + 58 + 2), abs=12)
    assert directions[2] == pytest.approx(2 * (18 + 28 + 2), abs=12)


@pytest.mark.parametrize("shape", [(64, 64), (240, 320), (75, 109)])
def test_dimension_of_a_square_and_of_lines(shape):
    square, across, down = (np.zeros(shape, bool) for _ in range(3))
    square[:48, :48] = True
    across[-1, :48], down[:48, -1] = True, True
    assert features._dimension(square) == pytest.approx(2.0)
    assert features._dimension(across) == pytest.approx(1.0)
    assert features._dimension(down) == pytest.approx(1.0)
    assert features._dimension(np.zeros(shape, bool)) == 0.0


@pytest.mark.parametrize("degrees", [0, 20, 70, 90, 110, 160])
@pytest.mark.parametrize("sign", [1, -1])
def test_gradients_fall_into_their_quadrant_whatever_their_sign(degrees, sign):
    y, x = np.mgrid[:40, :40].astype(np.float32)
    angle = np.deg2rad(degrees)
    # 90 and 0 degrees exactly, not nearly.
    ramp = sign * (round(np.cos(angle), 9) * x + round(np.sin(angle), 9) * y)
    colours = np.repeat(ramp[..., None].astype(np.float32), 3, axis=2)
    across, down = strongest_gradients(colours)
    masks = features.quadrants(across[1:-1, 1:-1], down[1:-1, 1:-1])
    assert [mask.mean() for mask in masks] == [float(k == degrees // 45) for k in range(4)]


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
    assert np.median(scene.person[scene.roi]) == pytest.approx(1.0)
    assert scene.person[-1, 0] / scene.person[0, 0] == pytest.approx(3.0, rel=0.02)
    # A map of half the size is the same map.
    half = make_scene(480, 640, roi=roi, perspective=perspective_line(240, 320, 20, 60))
    np.testing.assert_allclose(half.person, scene.person, rtol=0.01)


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
    look = plain_look(mask, across=steep)
    left, left_edges, left_area, left_length, *rest = features.describe_motion(
        look, scene, flow
    )
    right, right_edges, right_area, right_length = rest
    assert left_area[0] == pytest.approx(200) and left.sum() == pytest.approx(200)
    assert right_area[0] == pytest.approx(100) and right.sum() == pytest.approx(100)
    assert left_length[0] == pytest.approx(20) and left_edges.sum() == pytest.approx(20)
    assert right_length[0] == 0 and not right_edges.any()


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
    motion = found.values[:, found.columns["motion"]]
    d = motion.shape[1] // 2
    left, right = motion[:, d - 2], motion[:, -2]
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
    assert np.isnan(found.values[[0, 4]]).all()
    assert np.isfinite(found.values[[1, 2, 3, 5, 6]]).all()
    np.testing.assert_array_equal(found.readable, [0, 1, 1, 1, 0, 1, 1])
    assert len(found.problems) == 2
    assert "0001.png" in found.problems[0] and "30 × 40" in found.problems[1]


def test_columns_and_blocks_follow_the_views(tmp_path, rng):
    empty, images = walker_frames(rng, 2, np.ones(2), (60, 80))
    frames, scene = write_pngs(tmp_path / "frames", images), make_scene(60, 80)
    background = grainy(empty, rng, 0.0)
    found = describe_frames(frames, scene, Backgrounds(np.array([1.0]), [background]), silent)
    look = look_at(images[1], background, scene)
    for name, view in features.describe(look, scene).items():
        part = found.columns[name]
        np.testing.assert_array_equal(found.values[1, part], np.concatenate(view))
        sizes = np.unique(found.blocks[part], return_counts=True)[1]
        assert sizes.tolist() == [len(block) for block in view]
    assert list(found.columns) == ["size", "edges", "texture"]
    assert found.columns["texture"].stop == found.values.shape[1] == len(found.blocks)
    assert np.all(np.diff(found.blocks) >= 0)


def test_any_number_of_threads_gives_the_same_rows(tmp_path, rng, monkeypatch, three_threads):
    empty, images = walker_frames(rng, 30, np.linspace(0.9, 1.1, 30))
    frames, scene = write_pngs(tmp_path / "frames", images), make_scene(60, 80, motion=True)
    backgrounds = Backgrounds(np.array([1.0]), [grainy(empty, rng, 0.0)])
    found = []
    for cores in (1, 2, 7):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=cores: range(n), raising=False)
        found.append(describe_frames(frames, scene, backgrounds, silent).values)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    assert len(np.unique(found[0], axis=0)) == 30


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
