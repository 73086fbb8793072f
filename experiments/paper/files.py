"""Files of the paper's data: found in the user's folder or cache, or downloaded.

Environment: ACTIVEHUBER_DATA, a folder; ACTIVEHUBER_OFFLINE=1, no downloads;
ACTIVEHUBER_MIRROR, a web address that stands in for the host of every download.
"""

from __future__ import annotations

import http.client
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib import error as url_error
from urllib import parse, request

from activehuber.runtime.files import write_file
from activehuber.runtime.messages import TableError, first_line

Report = Callable[[str], None]
# Seconds without a byte, seconds for a whole file, and the largest one that is accepted.
SILENCE, LONGEST, MOST_BYTES = 30.0, 600.0, 64 * 2**20


class MissingDataError(TableError):
    """A file of the paper's data is not there; the message says how to supply it."""


class DownloadError(TableError):
    """A download that did not give the data."""


def silent(line: str) -> None:
    """Say nothing."""


# --- files ------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Where downloads are kept: $XDG_CACHE_HOME/activehuber, or the platform's place."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):
        return Path(given) / "activehuber"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "activehuber"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
        return Path(local) / "activehuber" / "Cache"
    return Path.home() / ".cache" / "activehuber"


def find(name: str) -> Path | None:
    """The file in $ACTIVEHUBER_DATA, else in the cache; None if it is in neither.

    Parameters
    ----------
    name : str
        Relative to the data folder, with forward slashes.
    """
    given = os.environ.get("ACTIVEHUBER_DATA")
    if given and not Path(given).is_dir():
        raise MissingDataError(f"ACTIVEHUBER_DATA is {given}, which is not a folder")
    folders = [Path(given)] if given else []
    return next((f / name for f in [*folders, cache_folder()] if (f / name).is_file()), None)


def require(names: Sequence[str], origin: str) -> list[Path]:
    """Paths of files that are not downloaded.

    Parameters
    ----------
    names : sequence of str
        Relative to the data folder.
    origin : str
        Where a person gets them.

    Returns
    -------
    list of Path
        One a name; if any is missing, an error that names all that are.
    """
    paths = {name: find(name) for name in names}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        them = "it" if len(missing) == 1 else "them"
        raise MissingDataError(f"{where_missing(*missing)}: take {them} from {origin}")
    return [path for path in paths.values() if path is not None]


def where_missing(*names: str) -> str:
    """What is missing from which folder."""
    given = os.environ.get("ACTIVEHUBER_DATA")
    verb = "is" if len(names) == 1 else "are"
    if given:
        return f"{', '.join(names)} {verb} not in {given} (ACTIVEHUBER_DATA)"
    folder = cache_folder()
    return f"{', '.join(names)} {verb} not in {folder} (or a folder named by ACTIVEHUBER_DATA)"


def keep_download(name: str, content: bytes, report: Report) -> None:
    """Put a download into the cache, whole or not at all."""
    try:
        write_file(cache_folder() / name, content)
    except (TableError, OSError) as error:
        # The data are at hand: without the cache the next run downloads them again.
        report(f"not kept: {error}")


# --- downloads --------------------------------------------------------------------------


def download(url: str, report: Report = silent) -> bytes:
    """The bytes at a web address; all of them, or a `DownloadError` of one line.

    Parameters
    ----------
    url : str
        Its host is replaced by $ACTIVEHUBER_MIRROR if that is set.
    report : callable
        Called with one line as the download goes on.

    Returns
    -------
    bytes
    """
    if os.environ.get("ACTIVEHUBER_OFFLINE", "0") not in ("", "0"):
        raise DownloadError(f"{url}: downloads are switched off by ACTIVEHUBER_OFFLINE")
    address = _mirrored(url)
    if parse.urlsplit(address).scheme not in ("http", "https"):
        raise DownloadError(f"{address} is not a web address")
    opener = request.build_opener(_Redirects)
    wanted = request.Request(address, headers={"User-Agent": "activehuber"})
    report(f"downloading {address}")
    try:
        with opener.open(wanted, timeout=SILENCE) as response:
            return _body(response, address, report)
    except url_error.HTTPError as error:
        error.close()
        raise DownloadError(f"{address}: the server answers {error.code}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, DownloadError):
            raise
        reason = getattr(error, "reason", None) or error
        raise DownloadError(
            f"{address}: {first_line(reason) or type(error).__name__}"
        ) from None


def _mirrored(url: str) -> str:
    mirror = os.environ.get("ACTIVEHUBER_MIRROR")
    if not mirror:
        return url
    return mirror.rstrip("/") + parse.urlsplit(url).path


class _Redirects(request.HTTPRedirectHandler):
    """Follow redirects, but never from an encrypted address to an open one."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        """As the base class asks for it."""
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise DownloadError(f"{req.full_url}: redirected to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _body(response: Any, address: str, report: Report) -> bytes:
    """Read a response to its end; too much, too little or a web page is an error."""
    given = response.headers.get("Content-Length") or ""
    total = int(given) if given.isdigit() else None
    content = bytearray()
    started = said = time.monotonic()
    # read1 returns what has come, so a server that drips bytes cannot hold us for ever.
    while chunk := response.read1(2**16):
        content += chunk
        now = time.monotonic()
        if len(content) > MOST_BYTES:
            raise DownloadError(f"{address}: more than {MOST_BYTES >> 20} MiB")
        if now - started > LONGEST:
            raise DownloadError(f"{address}: not complete after {LONGEST:.0f} s")
        if now - said > 1.0:
            report(f"{_size(len(content))}{f' of {_size(total)}' if total else ''}")
            said = now
    if total is not None and len(content) < total:
        raise DownloadError(f"{address}: broke off after {len(content)} of {total} bytes")
    kind = response.headers.get_content_type()
    if kind == "text/html" or bytes(content[:100]).lstrip()[:1] == b"<":
        raise DownloadError(f"{address}: a web page came instead of data")
    if not content:
        raise DownloadError(f"{address}: nothing came")
    report(f"{_size(len(content))}, complete")
    return bytes(content)


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
