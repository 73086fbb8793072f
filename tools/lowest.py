"""Print pins of the lowest versions that pyproject.toml allows, one a line, for pip.

python tools/lowest.py > constraints.txt
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(\[(?P<extras>[^\]]*)\])?\s*(>=\s*(?P<lowest>[0-9.]+))?"
)


def requirements(project: dict) -> list[str]:
    """All requirements of the package, of its extras and of the tests."""
    extras = project["project"]["optional-dependencies"].values()
    groups = [project["project"]["dependencies"], *extras, project["dependency-groups"]["test"]]
    return [requirement for group in groups for requirement in group]


def pins(project: dict) -> list[str]:
    """The requirements with the lower bound as the version.

    Raises
    ------
    ValueError
        If a requirement has no lower bound, or one package has two.
    """
    own = project["project"]["name"]
    found: dict[str, str] = {}
    for requirement in requirements(project):
        match = REQUIREMENT.fullmatch(requirement)
        if match is not None and match["name"] == own:
            continue  # an extra made of other extras
        if match is None or match["lowest"] is None:
            raise ValueError(f"no plain lower bound in {requirement!r}")
        name, lowest = match["name"], match["lowest"]
        if found.setdefault(name, lowest) != lowest:
            raise ValueError(f"{name} has two lower bounds: {found[name]} and {lowest}")
    return [f"{name}=={lowest}" for name, lowest in sorted(found.items())]


def main() -> None:
    path = Path(__file__).resolve().parent.parent / "pyproject.toml"
    print("\n".join(pins(tomllib.loads(path.read_text(encoding="utf-8")))))


if __name__ == "__main__":
    main()
