"""The kinds of failure that docs/reliability.md lists: each is named by a test in every file it points to."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "reliability.md"
ROW = re.compile(r"^\| (F\d\d) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def listed() -> list[tuple[str, list[str]]]:
    """Each kind of the table and its files."""
    rows = ROW.findall(PAGE.read_text())
    return [(kind, re.findall(r"`([^`]+)`", files)) for kind, _, files in rows]


def named(path: Path) -> set[str]:
    """Kinds that tests of this file carry: ``test_f45_...``, or ``F45, F46`` first in a docstring."""
    kinds: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if not node.name.lower().startswith("test"):
            continue
        if in_name := re.match(r"test_(f\d\d)_", node.name):
            kinds.add(in_name[1].upper())
        if in_text := re.match(r"F\d\d(, F\d\d)*", ast.get_docstring(node) or ""):
            kinds.update(in_text[0].split(", "))
    return kinds


def test_every_kind_is_tested_where_the_page_says() -> None:
    rows = listed()
    assert len(rows) > 50
    assert all(files for _, files in rows)
    kinds_of = {file: named(TESTS / file) for _, files in rows for file in files}
    wrong = [(kind, file) for kind, files in rows for file in files if kind not in kinds_of[file]]
    assert not wrong


def test_every_kind_that_a_test_names_is_on_the_page() -> None:
    in_tests = set().union(*(named(path) for path in TESTS.glob("*/test_*.py")))
    assert in_tests <= {kind for kind, _ in listed()}


def test_kinds_are_listed_once_and_in_order() -> None:
    kinds = [kind for kind, _ in listed()]
    assert kinds == sorted(set(kinds))
