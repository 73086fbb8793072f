import os
import random
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from hypothesis import settings

from tests.browsing import chromium

matplotlib.use("Agg")
# No test may reach for the web, whatever data are missing.
os.environ["ACTIVEHUBER_OFFLINE"] = "1"
settings.register_profile(
    "house", deadline=None, max_examples=60, derandomize=True, database=None
)
settings.load_profile("house")


def pytest_addoption(parser):
    parser.addoption("--shuffle", metavar="SEED", help="run the tests in an order of this seed")


def pytest_report_header(config):
    seed = config.getoption("shuffle")
    return None if seed is None else f"in the order of --shuffle={seed}"


def pytest_collection_modifyitems(config, items):
    """Files change places, and tests within a file: what a file shares is made once."""
    seed = config.getoption("shuffle")
    if seed is not None:
        draw = random.Random(seed)
        draw.shuffle(items)
        places = {item.path: draw.random() for item in items}
        items.sort(key=lambda item: places[item.path])


@pytest.fixture
def rng():
    return np.random.default_rng(20261115)


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def data_folder():
    folder = os.environ.get("ACTIVEHUBER_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("ACTIVEHUBER_DATA is not set: the paper's data is not used")
    return Path(folder)
