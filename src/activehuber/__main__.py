"""`activehuber` and `python -m activehuber`: ready to be stopped, then the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """The console script."""
    try:
        # Imported here, so that Ctrl-C finds somebody; both are light.
        from activehuber.runtime import interrupts, streams

        interrupts.listen()
    except KeyboardInterrupt:
        print("activehuber: stopped", file=sys.stderr)
        sys.exit(130)
    streams.guard()
    code = _run()
    sys.stderr.flush()
    interrupts.finish(code)
    sys.exit(code)


def _run() -> int:
    try:
        from activehuber.cli.app import run
    except ImportError as error:
        needed = "pip install 'activehuber[cli]'"
        print(f"activehuber: {error}; the command line needs: {needed}", file=sys.stderr)
        return 2
    return run(sys.argv[1:])


if __name__ == "__main__":
    main()
