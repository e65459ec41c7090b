"""The ledger of the tests is read while others write to it."""

from pathlib import Path

from support.ledger import Ledger, whole_lines


def test_a_line_counts_once_it_has_ended(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    assert ledger.starts() == []
    ledger.path.write_text("START default:1 1 5 70 17.5 3\nSTART default:2 1 6 70 17")
    assert [line.job_id for line in ledger.starts()] == ["default:1"]
    with ledger.path.open("a") as file:
        file.write(".5 3\n")
    assert [(line.job_id, line.at) for line in ledger.starts()] == [
        ("default:1", 17.5),
        ("default:2", 17.5),
    ]
    ledger.close()


def test_an_empty_line_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("\none\n")
    assert whole_lines(path) == ["", "one"]
