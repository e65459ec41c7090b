"""Everything at once, for a short while; ``make chaos`` does it for longer."""

from pathlib import Path

from support.chaos import Chaos
from support.faults import Place


def test_f90_chaos(tmp_path: Path) -> None:
    """F90 (short): a seed that throws most kinds of faults within 30 s; V1 to V6 after the drain."""
    place = Place(tmp_path, "chaos", persistent=True, appendfsync="always", die_with_parent=False)
    try:
        chaos = Chaos(place, seed=1, seconds=30, jobs=900, supervisors=2)
        verdict = chaos.run()
        print(verdict.figures(), *place.notes, dict(chaos.fired), sep="\n")
        logs = "\n".join(process.text()[-1500:] for process in place.processes)
    finally:
        place.close()
    assert not verdict.problems, "\n".join([*verdict.problems[:20], logs])
    assert len(chaos.fired) >= 6, chaos.fired
