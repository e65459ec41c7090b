"""The table of states is whole, and its diagram lists all of it."""

import runpy

import pytest

from taskq.states import TERMINAL, TRANSITIONS, WAITING, State, diagram


def moves() -> set[tuple[str, str, str]]:
    return {
        (source or "(new)", target or "(gone)", name)
        for name, transition in TRANSITIONS.items()
        for source, target in transition.moves
    }


def test_the_diagram_lists_every_move() -> None:
    shown = set()
    for line in diagram().splitlines():
        ends, _, names = line.partition(": ") if ": " in line else (line, "", "")
        words = line.split()
        source, arrow, target = words[:3]
        assert arrow == "->", ends
        shown |= {(source, target, name.rstrip(",")) for name in words[3:]}
        assert names or words[3:]
    assert shown == moves()


def test_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(RuntimeWarning, match="taskq.states"):
        runpy.run_module("taskq.states", run_name="__main__")
    assert capsys.readouterr().out == diagram() + "\n"


def test_states_are_divided() -> None:
    assert {*TERMINAL, *WAITING, State.RUNNING, State.BLOCKED} == set(State)
    assert not TERMINAL & WAITING


def test_nothing_ended_runs_again_but_by_an_explicit_retry() -> None:
    back = {(s, t, n) for s, t, n in moves() if s in TERMINAL and t != "(gone)"}
    assert back == {("failed", "queued", "retry")}


def test_only_claim_leads_to_running() -> None:
    assert {n for _, t, n in moves() if t == "running"} == {"claim"}


def test_only_a_success_is_finished() -> None:
    assert {(s, n) for s, t, n in moves() if t == "succeeded"} == {("running", "finish")}


def test_every_state_but_blocked_can_be_reached_and_left() -> None:
    reached, left = {t for _, t, _ in moves()}, {s for s, _, _ in moves()}
    assert set(State) - reached == {State.BLOCKED}
    assert set(State) <= left


def test_staying_put_is_always_allowed() -> None:
    for transition in TRANSITIONS.values():
        assert all(transition.allows(state, state) for state in State)
        assert all(
            transition.allows(a, b) == ((a, b) in transition.moves)
            for a in State
            for b in State
            if a != b
        )
