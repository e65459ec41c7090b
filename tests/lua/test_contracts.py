"""The scripts against their own headers, the table of moves and the table of keys."""

import re
from importlib import resources

import pytest

from support.queue import sources
from taskq import keys, lua
from taskq.states import TRANSITIONS, State

SCRIPTS = lua.names()
READERS = [name for name in SCRIPTS if lua.load(name).read_only]
INCLUDES = sorted({include for name in SCRIPTS for include in lua.load(name).includes})

DOOR = {"throttle"}
"""Scripts of the API's door, which know nothing of queues and jobs."""

INTERNAL = {"MISSING", "WRONGTYPE", "LIMIT", "WITHSCORES", "ZRANGEBYSCORE"}
INTERNAL |= {"ZRANGE", "ZREVRANGE", "ZRANK", "ZREVRANK", "ZCOUNT"}
"""Words that a script tells its own pieces or Redis, never a caller."""

CHANNELS = {"done:"}
"""Names for PUBLISH: nothing is stored under them."""


def piece(name: str) -> str:
    return resources.files(lua).joinpath(f"{name}.lua").read_text()


def code(text: str) -> str:
    """A script without its comments."""
    return "\n".join(
        line for line in text.splitlines() if not line.lstrip().startswith(("--", "#!"))
    )


def words(text: str) -> set[str]:
    """Words in upper case that the code handles, those inside a Redis command left out."""
    inner = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"
    text = re.sub(rf"redis\.p?call\({inner}\)", "", code(text))
    text = re.sub(r"bulk\('[A-Z]+'", "", text)
    return set(re.findall(r"'([A-Z][A-Z_]+)(?: [^']*)?'", text)) - INTERNAL


def test_there_is_one_script_for_each_transition_and_each_reader() -> None:
    assert set(SCRIPTS) == set(TRANSITIONS) | set(READERS) | DOOR
    assert not set(TRANSITIONS) & set(READERS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_title_names_only_moves_of_the_table(name: str) -> None:
    title = lua.load(name).title
    if "->" not in title:
        assert name in {*READERS, *DOOR} or not TRANSITIONS[name].moves
        return
    before, after = ([word.strip() for word in side.split("|")] for side in title.split("->"))
    states = {s.value: s for s in State} | {"(new)": None, "(gone)": None}
    moves = {(states[b], states[a]) for b in before for a in after}
    assert moves <= TRANSITIONS[name].moves


@pytest.mark.parametrize("name", SCRIPTS)
def test_flags_say_what_a_script_may_do_when_memory_is_full(name: str) -> None:
    if name in ("enqueue", "log"):
        expected = set()  # adds what nothing takes away soon: refused before its first write
    elif name in {*TRANSITIONS, *DOOR}:
        expected = {"allow-oom"}
    else:
        expected = {"no-writes"}
    assert lua.load(name).flags == expected


@pytest.mark.parametrize("name", [*SCRIPTS, *INCLUDES])
def test_no_body_uses_positional_arguments(name: str) -> None:
    assert not re.search(r"\b(KEYS|ARGV)\b", code(piece(name)))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_answers_the_words_that_it_declares(name: str) -> None:
    script = lua.load(name)
    own = words(script.source)
    included = set().union(*(words(piece(include)) for include in script.includes))
    assert own <= set(script.replies), "answered, but not declared"
    assert set(script.replies) <= own | included, "declared, but never answered"


def documented() -> set[str]:
    """First column of the table in ``keys.py``: ``job:`` for ``job:<ulid>``, ``config`` as it is."""
    table = re.split(r"^=====.*$", keys.__doc__ or "", flags=re.MULTILINE)[2]
    names = [n.strip() for row in table.splitlines() for n in row[:22].split(",")]
    return {re.sub(r"<.*>", "", name) for name in names if name}


def test_the_table_of_keys_is_read_as_meant() -> None:
    assert {"job:", "ready:", "stubs:", "config", "cancelled", "retrying"} <= documented()


@pytest.mark.parametrize("name", [*SCRIPTS, *INCLUDES])
def test_every_key_that_a_script_builds_is_in_the_table(name: str) -> None:
    text = code(piece(name))
    built = set(re.findall(r"prefix \.\. '([^']+)'", text))
    built |= set(re.findall(r"readable_zset\('([^']+)'", text))
    built = {re.sub(":.*", ":", key) for key in built}
    assert built - CHANNELS <= documented()


def test_no_script_looks_at_a_key_outside_the_prefix() -> None:
    """A command's first argument is a variable that holds a built key, or the prefix and a name."""
    for name, text in {**sources(), **{i: piece(i) for i in INCLUDES}}.items():
        literal = re.findall(r"redis\.p?call\('[A-Z]+', ?'([^']*)'", code(text))
        assert not literal, f"{name}: {literal}"
