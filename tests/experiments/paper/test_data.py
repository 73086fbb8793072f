"""The paper's data: which file is read, what is downloaded, and what is never kept."""

import hashlib
import io
import socket
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from scipy.io import savemat

from activehuber.runtime.messages import TableError
from experiments.paper import data, files
from tests.matlab import cells

TABLE = np.array([[1.0, 2.5, 3.0], [4.0, -5.0, 0.1], [7.0, 8.0, 9e-3]])
PLAIN = "1 2.5 3\n4   -5  0.1\n\n7\t8\t9e-3\n"


def sha256(table):
    return hashlib.sha256(b"".join(np.float64(v).tobytes() for v in table.flat)).hexdigest()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """No data folder, an empty cache, no network."""
    for name in ("ACTIVEHUBER_DATA", "ACTIVEHUBER_MIRROR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ACTIVEHUBER_OFFLINE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "activehuber"


@pytest.fixture
def folder(cache, tmp_path, monkeypatch):
    """An empty data folder."""
    monkeypatch.setenv("ACTIVEHUBER_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


class Site:
    """A web site on this machine; `answers` maps a path to what happens there."""

    def __init__(self):
        self.answers, self.asked = {}, []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                site.asked.append(self.path)
                answer = site.answers.get(self.path, Site.status(404))
                answer(self)

            def log_message(self, *words):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    @staticmethod
    def status(code, **headers):
        def answer(handler):
            handler.send_response(code)
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        return answer

    @staticmethod
    def gives(content, kind="application/octet-stream", length=True, cut=None):
        """Serve bytes; with `cut` the connection ends after so many of them."""

        def answer(handler):
            handler.send_response(200)
            handler.send_header("Content-Type", kind)
            if length:
                handler.send_header("Content-Length", str(len(content)))
            handler.end_headers()
            handler.wfile.write(content[:cut])

        return answer

    @staticmethod
    def resets(handler):
        """End the connection in the middle of an answer, without a farewell."""
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b"1 2 3\n")
        handler.wfile.flush()
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        # Both file objects hold the socket too.
        handler.rfile.close()
        handler.connection.close()


@pytest.fixture
def site(cache, monkeypatch):
    """A site that stands in for every host."""
    site = Site()
    thread = threading.Thread(target=site.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("ACTIVEHUBER_OFFLINE", "0")
    monkeypatch.setenv("ACTIVEHUBER_MIRROR", site.url + "/")
    monkeypatch.setenv("no_proxy", "*")
    yield site
    site.server.shutdown()
    thread.join()
    site.server.server_close()


@pytest.fixture
def small(monkeypatch):
    """A small table in the stead of the airfoils, at two places."""
    places = (
        data.Place("https://one.invalid/a/b+c.zip", "t.dat"),
        data.Place("https://two.invalid/t.arff"),
    )
    monkeypatch.setitem(data.UCI, "Air", data.Source("uci/t.csv", 3, sha256(TABLE), places))


def zipped(text, name="t.dat"):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, text)
    return content.getvalue()


def files_below(path):
    return sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file())


# --- tables of numbers ------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        "a,b,c\n1,2.5,3\n4,-5,0.1\n7,8,9e-3\n",
        '"fixed acidity";"ph";"quality"\r\n1;2.5;3\r\n4;-5;0.1\r\n7;8;0.009\r\n',
        "% @data 0 0 0\n@relation r\n@attribute a {'4','1','7'}\n@DATA\n"
        "'1',2.5,3\n% 5 5 5\n'4',-5,0.1\n7,8,9e-3\n",
    ],
)
def test_numbers_are_read_whatever_stands_between_them(text):
    np.testing.assert_array_equal(data.numbers(text), TABLE)


@pytest.mark.parametrize("text", ["", "a,b\n", "1 2\n3 x\n", "1 2\n3\n", "1 2\n3 nan\n"])
def test_what_is_not_a_table_is_refused(text):
    with pytest.raises(TableError):
        data.numbers(text)


def test_the_checksum_is_of_the_numbers(rng):
    table = rng.normal(size=(5, 4))
    assert data.checksum(table) == data.checksum(np.asfortranarray(table)) == sha256(table)
    assert data.checksum(table) != data.checksum(table + 1e-15)


# --- which file is read -----------------------------------------------------------------


def test_the_folder_comes_before_the_cache(folder, cache, small):
    for place, offset in ((folder, 0.0), (cache, 1.0)):
        (place / "uci").mkdir(parents=True)
        np.savetxt(place / "uci/t.csv", TABLE + offset, delimiter=",", header="a,b,c")
    X, y = data.uci("Air")
    np.testing.assert_array_equal(X, TABLE[:, :2])
    np.testing.assert_array_equal(y, TABLE[:, 2])
    (folder / "uci/t.csv").unlink()
    with pytest.raises(TableError, match="has changed since its download; delete it"):
        data.uci("Air")
    np.savetxt(cache / "uci/t.csv", TABLE, delimiter=" ", fmt="%.17g")
    np.testing.assert_array_equal(data.uci("Air")[1], TABLE[:, 2])


def test_a_folder_that_is_not_there_is_said(folder, monkeypatch):
    monkeypatch.setenv("ACTIVEHUBER_DATA", str(folder / "no"))
    with pytest.raises(files.MissingDataError, match=r"ACTIVEHUBER_DATA is .*no, which is not"):
        data.uci("Air")


def test_unknown_names(cache):
    with pytest.raises(ValueError, match="no set 'Air '; there are House, Air, Hydro, Wine"):
        data.uci("Air ")
    with pytest.raises(ValueError, match="no set 'heart'; there are Breast Cancer"):
        data.raetsch("heart")


def test_another_number_of_columns_is_refused(folder, small):
    (folder / "uci").mkdir()
    (folder / "uci/t.csv").write_text("1 2\n3 4\n")
    with pytest.raises(TableError, match=r"t\.csv has 2 columns, not 3"):
        data.uci("Air")


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_the_cache_is_where_the_platform_has_it(platform, monkeypatch, tmp_path):
    monkeypatch.setattr(files.sys, "platform", platform)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "Local"))
    # A relative path is not to be used, says the standard.
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    places = {
        "linux": ".cache/activehuber",
        "darwin": "Library/Caches/activehuber",
        "win32": "Local/activehuber/Cache",
    }
    assert files.cache_folder() == tmp_path / places[platform]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    assert files.cache_folder() == tmp_path / "c" / "activehuber"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: data.uci("Air"), ["uci/airfoil.csv", "airfoil_self_noise.dat", "291/"]),
        (lambda: data.uci("House"), ["uci/boston_housing.csv", "boston.arff", "housing.data"]),
        (lambda: data.raetsch("Diabetes"), ["diabetis.npz", "raetsch/benchmarks.mat"]),
        (data.mall_features, ["mall/mall_feat.mat, mall/mall_gt.mat", "mall_dataset.zip"]),
        (data.ucsd_left, ["ucsd_peds1_left.npz", "Peds1_feats.mat", "ucsdpeds_feats"]),
        (data.ucsd, ["ucsd_peds1/cvpr_feats.mat", "ucsdpeds_feats"]),
        (lambda: data.pets2009("13-57", "R1"), ["pets2009/13-57_R1_feats.mat", "dirs", "cnt"]),
    ],
)
def test_missing_data_say_which_file_from_where_into_which_folder(call, words, cache, folder):
    with pytest.raises(files.MissingDataError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message and f"{folder} (ACTIVEHUBER_DATA)" in message
    assert "http" in message and all(word in message for word in words)


def test_without_a_folder_the_cache_is_named(cache):
    with pytest.raises(files.MissingDataError) as caught:
        data.mall_features()
    assert f"not in {cache} (or a folder named by ACTIVEHUBER_DATA)" in str(caught.value)


# --- downloads --------------------------------------------------------------------------


def test_a_download_is_checked_kept_and_not_repeated(site, cache, small):
    site.answers["/a/b+c.zip"] = Site.gives(zipped(PLAIN))
    lines = []
    X, y = data.uci("Air", lines.append)
    np.testing.assert_array_equal(np.column_stack([X, y]), TABLE)
    assert lines[0] == f"downloading {site.url}/a/b+c.zip" and lines[-1].endswith("complete")
    assert files_below(cache) == ["uci/t.csv"]
    # The kept file has a title line, as in the data folder.
    kept = np.loadtxt(cache / "uci/t.csv", delimiter=",", skiprows=1)
    np.testing.assert_array_equal(kept, TABLE)
    site.answers.clear()
    np.testing.assert_array_equal(data.uci("Air")[0], X)
    assert site.asked == ["/a/b+c.zip"]


def test_the_second_place_serves_when_the_first_does_not(site, cache, small):
    arff = "@relation t\n@data\n" + PLAIN.replace("  ", " ").replace(" ", ",")
    site.answers["/t.arff"] = Site.gives(arff.encode(), "text/plain")
    np.testing.assert_array_equal(data.uci("Air")[1], TABLE[:, 2])
    assert site.asked == ["/a/b+c.zip", "/t.arff"]


PAGE = b"<!DOCTYPE html><html><body>Log in</body></html>"
WRONG = {
    "not found": (Site.status(404), "the server answers 404"),
    "error": (Site.status(500), "the server answers 500"),
    "empty": (Site.gives(b""), "nothing came"),
    "page": (Site.gives(PAGE, "text/html; charset=utf-8"), "a web page came"),
    "page that says it is data": (Site.gives(b"\n " + PAGE), "a web page came"),
    "other numbers": (Site.gives(zipped(PLAIN.replace("2.5", "2.6"))), "checksum is not"),
    "a row less": (Site.gives(zipped("1 2.5 3\n4 -5 0.1\n")), "checksum is not"),
    "another archive": (Site.gives(zipped(PLAIN, "u.dat")), "no zip archive with t.dat"),
    "no archive": (Site.gives(PLAIN.encode()), "no zip archive with t.dat"),
    "short": (Site.gives(zipped(PLAIN), cut=60), "broke off after 60 of"),
    "short without length": (Site.gives(zipped(PLAIN), length=False, cut=60), "no zip archive"),
    "reset": (Site.resets, "reset by peer"),
    "redirect in a circle": (Site.status(302, Location="/a/b+c.zip"), "answers 302"),
    "redirect to a page": (Site.status(302, Location="/login"), "a web page came"),
    "redirect to a file": (Site.status(302, Location="file:///etc/hosts"), "answers 302"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_the_data_is_one_line_and_leaves_no_file(case, site, cache, small):
    answer, words = WRONG[case]
    site.answers |= {"/a/b+c.zip": answer, "/login": Site.gives(PAGE, "text/html")}
    with pytest.raises(files.MissingDataError) as caught:
        data.uci("Air")
    message = str(caught.value)
    first = message.split("the download failed (")[1].split("; ")[0]
    assert (
        first.startswith((site.url, "https://one.invalid/"))
        and words in first
        and "\n" not in message
    )
    assert "t.dat of https://one.invalid/a/b+c.zip or https://two.invalid/t.arff" in message
    assert files_below(cache.parent) == []


def test_a_redirect_to_the_data_is_followed(site, cache, small):
    site.answers["/a/b+c.zip"] = Site.status(301, Location="/moved.zip")
    site.answers["/moved.zip"] = Site.gives(zipped(PLAIN))
    np.testing.assert_array_equal(data.uci("Air")[1], TABLE[:, 2])


def test_no_redirect_from_an_encrypted_address_to_an_open_one():
    asked = files.request.Request("https://one.invalid/a")
    move = files._Redirects().redirect_request
    with pytest.raises(files.DownloadError, match="which is not https"):
        move(asked, None, 302, "Found", {}, "http://one.invalid/a")
    assert move(asked, None, 302, "Found", {}, "https://b.invalid/").full_url == (
        "https://b.invalid/"
    )


def test_silence_ends_a_download(site, monkeypatch):
    awake = threading.Event()
    monkeypatch.setattr(files, "SILENCE", 0.2)
    site.answers["/slow"] = lambda handler: awake.wait(5.0)
    try:
        with pytest.raises(files.DownloadError, match="timed out"):
            files.download("https://one.invalid/slow")
    finally:
        awake.set()


def test_dripping_bytes_end_a_download(site, monkeypatch):
    enough = threading.Event()

    def drips(handler):
        handler.send_response(200)
        handler.end_headers()
        while not enough.wait(0.02):
            handler.wfile.write(b"1 ")

    monkeypatch.setattr(files, "LONGEST", 0.2)
    site.answers["/drip"] = drips
    try:
        with pytest.raises(files.DownloadError, match="not complete after"):
            files.download("https://one.invalid/drip")
    finally:
        enough.set()


def test_too_much_ends_a_download(site, monkeypatch, small, cache):
    for module in (files, data):
        monkeypatch.setattr(module, "MOST_BYTES", 5000)
    site.answers["/much"] = Site.gives(b"1 " * 4000)
    with pytest.raises(files.DownloadError, match="more than"):
        files.download("https://one.invalid/much")
    # A small archive that unpacks to much is not unpacked.
    site.answers["/a/b+c.zip"] = Site.gives(zipped("1 " * 4000))
    with pytest.raises(files.MissingDataError, match=r"t\.dat in it is too large"):
        data.uci("Air")


@pytest.mark.parametrize("mirror", ["file:///etc", "nonsense", "http://127.0.0.1:1"])
def test_a_mirror_that_does_not_serve_is_said(mirror, cache, monkeypatch, small):
    monkeypatch.setenv("ACTIVEHUBER_OFFLINE", "")
    monkeypatch.setenv("ACTIVEHUBER_MIRROR", mirror)
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(files.MissingDataError, match=r"not a web address|refused"):
        data.uci("Air")


def test_offline_asks_nobody(site, monkeypatch, small):
    monkeypatch.setenv("ACTIVEHUBER_OFFLINE", "1")
    with pytest.raises(files.MissingDataError, match="switched off by ACTIVEHUBER_OFFLINE"):
        data.uci("Air")
    assert site.asked == []


def test_a_cache_that_cannot_be_written_does_not_stop_a_run(site, cache, small):
    cache.parent.mkdir()
    cache.write_text("a file where the folder should be")
    site.answers["/a/b+c.zip"] = Site.gives(zipped(PLAIN))
    lines = []
    np.testing.assert_array_equal(data.uci("Air", lines.append)[1], TABLE[:, 2])
    assert lines[-1].startswith("not kept: ")
    assert cache.read_text() == "a file where the folder should be"


# --- Raetsch ----------------------------------------------------------------------------


@pytest.fixture
def heart(rng):
    """X, t, and two splits counted from 0."""
    splits = np.array([rng.permutation(12) for _ in range(2)])
    return rng.normal(size=(12, 3)), np.where(rng.random(12) < 0.4, 1, -1), splits


def benchmarks(heart):
    X, t, splits = heart
    content = io.BytesIO()
    struct = {"x": X, "t": t[:, None], "train": splits[:, :8] + 1, "test": splits[:, 8:] + 1}
    savemat(content, {"heart": struct, "benchmarks": np.array(["heart"], dtype=object)})
    return content.getvalue()


def assert_is(found, heart, with_splits=True):
    X, t, splits = heart
    np.testing.assert_array_equal(found.X, X)
    np.testing.assert_array_equal(found.t, t)
    assert found.X.dtype == found.t.dtype == np.float64
    if with_splits:
        np.testing.assert_array_equal(np.hstack([found.train, found.test]), splits)
    else:
        assert found.train is None and found.test is None


@pytest.mark.parametrize("prefix", ["", "badsn_", None])
def test_raetsch_from_arrays(prefix, folder, heart):
    X, t, splits = heart
    rows = (
        {}
        if prefix is None
        else {f"{prefix}train": splits[:, :8], f"{prefix}test": splits[:, 8:]}
    )
    (folder / "raetsch").mkdir()
    np.savez(folder / "raetsch/heart.npz", X=X, t=t.astype(np.int8), **rows)
    assert_is(data.raetsch("Heart"), heart, with_splits=prefix is not None)


def test_raetsch_from_benchmarks_mat(folder, heart):
    (folder / "raetsch").mkdir()
    (folder / "raetsch/benchmarks.mat").write_bytes(benchmarks(heart))
    assert_is(data.raetsch("Heart"), heart)
    with pytest.raises(TableError, match=r"benchmarks\.mat cannot be used"):
        data.raetsch("Image")


def test_raetsch_from_the_web(site, cache, heart, monkeypatch):
    content = benchmarks(heart)
    path = "/tdiethe/gunnar_raetsch_benchmark_datasets/raw/master/benchmarks.mat"
    site.answers[path] = Site.gives(content)
    with pytest.raises(files.MissingDataError, match="checksum is not the one known"):
        data.raetsch("Heart")
    assert files_below(cache.parent) == []
    monkeypatch.setattr(data, "BENCHMARKS_SHA256", hashlib.sha256(content).hexdigest())
    for _ in range(2):
        assert_is(data.raetsch("Heart"), heart)
    assert site.asked == [path] * 2 and files_below(cache) == ["raetsch/benchmarks.mat"]
    (cache / "raetsch/benchmarks.mat").write_bytes(content[:-1])
    with pytest.raises(TableError, match="has changed since its download"):
        data.raetsch("Heart")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"t": np.arange(12)}, "t must be -1 and"),
        ({"t": np.ones(5)}, "X has shape"),
        ({"train": np.full((2, 8), 12)}, "rows outside 0 to 11"),
        ({"test": np.full((2, 4), -1)}, "rows outside 0 to 11"),
        ({"X": np.full((12, 3), np.nan)}, "gaps"),
        ({"X": np.array([{}] * 12, dtype=object)}, "cannot be used"),
        ({"train": None}, "one is missing"),
    ],
)
def test_raetsch_layouts_are_checked(change, words, folder, heart):
    X, t, splits = heart
    arrays = {"X": X, "t": t, "train": splits[:, :8], "test": splits[:, 8:]} | change
    (folder / "raetsch").mkdir()
    kept = {key: value for key, value in arrays.items() if value is not None}
    np.savez(folder / "raetsch/heart.npz", **kept)
    with pytest.raises(TableError, match=words):
        data.raetsch("Heart")


# --- crowds -----------------------------------------------------------------------------


def save_directions(path, names, rng, n=7, d=4):
    """A file as Chan publishes them; the features (n, d) and counts (n,) of each name."""
    made = {name: (rng.normal(size=(n, d)), rng.integers(0, 9, n)) for name in names}
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "dirs": cells(list(made)),
        "fv": cells([X.T for X, _ in made.values()]),
        "cnt": cells([count[None].astype(np.uint8) for _, count in made.values()]),
        "evalsets": cells([{"N": 3}]),
    }
    savemat(path, content)
    return made


@pytest.mark.parametrize("with_count", [True, False])
def test_mall(with_count, folder, rng):
    X, count = rng.normal(size=(5, 30)), np.array([2, 0, 3, 1, 4], dtype=np.uint8)
    (folder / "mall").mkdir()
    savemat(folder / "mall/mall_feat.mat", {"x": X})
    frames = cells([{"loc": rng.normal(size=(heads, 2))} for heads in count])
    content = {"frame": frames, "count": count[:, None]}
    if not with_count:
        del content["count"]
    savemat(folder / "mall/mall_gt.mat", content)
    features, found = data.mall_features()
    np.testing.assert_array_equal(features, X)
    np.testing.assert_array_equal(found, count)
    assert found.dtype == np.float64
    savemat(folder / "mall/mall_gt.mat", {"count": count[:4, None]})
    with pytest.raises(TableError, match=r"\(5, 30\) features do not fit \(4,\) counts"):
        data.mall_features()


def test_ucsd_as_published(folder, rng):
    made = save_directions(folder / "ucsd_peds1/cvpr_feats.mat", ["l", "r", "t"], rng)
    found = data.ucsd()
    for name, short in (("left", "l"), ("right", "r"), ("total", "t")):
        np.testing.assert_array_equal(found[name][0], made[short][0])
        np.testing.assert_array_equal(found[name][1], made[short][1])
        assert found[name][1].dtype == np.float64


def test_pets_without_a_total(folder, rng):
    path = folder / "pets2009/14-06_R2_feats.mat"
    made = save_directions(path, ["Right", "LEFT", "other"], rng)
    found = data.pets2009("14-06", "R2")
    assert set(found) == {"left", "right", "total"}
    np.testing.assert_array_equal(found["right"][0], made["Right"][0])
    np.testing.assert_array_equal(found["total"][1], made["LEFT"][1] + made["Right"][1])
    both = np.hstack([made["LEFT"][0], made["Right"][0]])
    np.testing.assert_array_equal(found["total"][0], both)


def test_all_missing_pets_files_are_named(folder, rng):
    save_directions(folder / "pets2009/13-57_R0_feats.mat", ["l", "r"], rng)
    with pytest.raises(files.MissingDataError) as caught:
        data.require_pets2009([("13-57", "R0"), ("13-57", "R1"), ("14-03", "R2")])
    wanted = "pets2009/13-57_R1_feats.mat, pets2009/14-03_R2_feats.mat are not in"
    assert str(caught.value).startswith(wanted)


@pytest.mark.parametrize(
    ("names", "change", "words"),
    [
        (["north", "south"], {}, "dirs must have l and r; it has north, south"),
        (["l", "r"], {"cnt": cells([np.ones((1, 7)), np.ones((1, 6))])}, "do not fit"),
        (["l", "r"], {"cnt": cells([np.ones((1, 7))])}, "cannot be used"),
        (["l", "r"], {"cnt": cells([np.ones((1, 7)), -np.ones((1, 7))])}, "counts below zero"),
        (["l", "r"], {"fv": cells([np.full((4, 7), np.nan)] * 2)}, "gaps"),
    ],
)
def test_directions_are_checked(names, change, words, folder, rng):
    path = folder / "pets2009/13-57_R0_feats.mat"
    made = save_directions(path, names, rng)
    content = {
        "dirs": cells(names),
        "fv": cells([X.T for X, _ in made.values()]),
        "cnt": cells([count[None] for _, count in made.values()]),
    }
    savemat(path, content | change)
    with pytest.raises(TableError, match=words):
        data.pets2009("13-57", "R0")


@pytest.mark.parametrize("content", [b"", b"MATLAB 5.0 MAT-file" + b"\0" * 200, b"\x89HDF\r\n"])
def test_damaged_files_are_one_line(content, folder):
    path = folder / "pets2009/13-57_R0_feats.mat"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(TableError, match=r"13-57_R0_feats\.mat cannot be used: ") as caught:
        data.pets2009("13-57", "R0")
    assert "\n" not in str(caught.value)


def test_left_moving_people(folder, rng):
    made = save_directions(folder / "ucsd_peds1/Peds1_feats.mat", ["l", "r", "t"], rng)
    X, count = data.ucsd_left()
    raw = made["l"][0]
    np.testing.assert_allclose(X, (raw - raw.mean(0)) / raw.std(0))
    np.testing.assert_array_equal(count, made["l"][1])
    np.savez(folder / "ucsd_peds1/ucsd_peds1_left.npz", X=raw, count=made["r"][1])
    X, count = data.ucsd_left()
    np.testing.assert_array_equal(X, raw)
    np.testing.assert_array_equal(count, made["r"][1])


# --- the paper's own --------------------------------------------------------------------


@pytest.mark.data
@pytest.mark.parametrize("name", data.UCI)
def test_the_checksums_are_those_of_the_papers_tables(name, data_folder):
    X, y = data.uci(name)
    assert data.checksum(np.column_stack([X, y])) == data.UCI[name].sha256


@pytest.mark.data
def test_the_papers_sets_have_their_sizes(data_folder):
    sizes = {name: data.raetsch(name).X.shape for name in data.RAETSCH}
    assert sizes == {
        "Breast Cancer": (263, 9),
        "Diabetes": (768, 8),
        "Thyroid": (215, 5),
        "German": (1000, 20),
        "Heart": (270, 13),
        "Image": (2086, 18),
    }
    splits = {name: data.raetsch(name).train for name in data.RAETSCH}
    counts = {name: len(rows) for name, rows in splits.items() if rows is not None}
    assert counts == {"Breast Cancer": 10, "Diabetes": 1, "German": 10, "Image": 9}
    X, count = data.mall_features()
    assert X.shape == (2000, 30) and count.sum() == 62315
    X, count = data.ucsd_left()
    assert X.shape == (4000, 30) and (count.min(), count.max()) == (4, 20)


@pytest.mark.data
def test_heads_and_counts_of_the_mall_agree(data_folder):
    content = data.loadmat(data_folder / "mall/mall_gt.mat")
    given = content.pop("count").ravel()
    np.testing.assert_array_equal(data._mall_counts(content), given)
