"""Reads the scripts and their contracts: the only reader of the ``.lua`` files.

A script opens with ``#!lua`` and a contract in comments::

    #!lua flags=allow-oom
    -- finish: running -> succeeded
    -- What it does and what it refuses.
    -- KEYS   prefix       <namespace>:{queue}:
    -- ARGV   now          ms      '' for the server's clock
    -- ARGV   worker       str
    -- ITEMS  item         id str, fence str, result bytes
    -- REPLY  per item     OK | STALE
    -- @include _clock

The loader turns the declared names into locals, so that no body holds a positional ``KEYS[`` or
``ARGV[``: types ``int`` become numbers, ``flag`` becomes a boolean, all else stays a string. ``ITEMS``
stands for groups of values after the fixed ones: the body reads ``item(i)`` for ``i = 1, item_count``.
Includes (``_*.lua``) are pasted in order, once, after the locals.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

_FIELD = re.compile(r"^-- (KEYS|ARGV|ITEMS|REPLY)\s+(\S.*)$")
_TITLE = re.compile(r"^-- ([a-z_]+): (.+)$")


@dataclass(frozen=True, slots=True)
class Script:
    """One script, ready to send.

    ``body`` starts with ``#!lua``; ``plain`` lacks that line, for servers that cannot read it.
    """

    name: str
    title: str
    flags: frozenset[str]
    arguments: tuple[str, ...]
    item_fields: tuple[str, ...]
    replies: tuple[str, ...]
    includes: tuple[str, ...]
    source: str
    body: str
    plain: str
    sha: str

    @property
    def read_only(self) -> bool:
        return "no-writes" in self.flags


def names() -> list[str]:
    """Names of all scripts, includes left out."""
    files = (entry.name for entry in resources.files(__name__).iterdir())
    return sorted(n[:-4] for n in files if n.endswith(".lua") and not n.startswith("_"))


@cache
def load(name: str) -> Script:
    """The script ``name``; raises ``ValueError`` if its contract cannot be read."""
    source = _read(name)
    lines = source.splitlines()
    if not lines or not lines[0].startswith("#!lua"):
        raise ValueError(f"{name}.lua: the first line must be #!lua")
    flags = frozenset(lines[0].partition("flags=")[2].split(",")) - {""}
    title = _TITLE.match(lines[1])
    if title is None or title[1] != name:
        raise ValueError(f"{name}.lua: the second line must be '-- {name}: ...'")
    contract = _Contract.parse(name, lines[2:])
    bodies = "\n".join(_strip(_read(include)) for include in contract.includes)
    rest = "\n".join(line for line in lines[1:] if not line.startswith("--"))
    plain = f"{contract.locals()}\n{bodies}\n{_strip(rest)}\n"
    body = f"{lines[0]}\n{plain}"
    return Script(
        name=name,
        title=title[2],
        flags=flags,
        arguments=tuple(n for n, _ in contract.arguments),
        item_fields=tuple(n for n, _ in contract.item_fields),
        replies=tuple(contract.replies),
        includes=tuple(contract.includes),
        source=source,
        body=body,
        plain=plain,
        sha=hashlib.sha1(body.encode(), usedforsecurity=False).hexdigest(),
    )


class _Contract:
    def __init__(self) -> None:
        self.keys: list[str] = []
        self.arguments: list[tuple[str, str]] = []
        self.item_name = ""
        self.item_fields: list[tuple[str, str]] = []
        self.replies: list[str] = []
        self.includes: list[str] = []

    @classmethod
    def parse(cls, name: str, lines: list[str]) -> "_Contract":
        contract = cls()
        for line in lines:
            if not line.startswith("--"):
                break
            if line.startswith("-- @include "):
                contract.includes.extend(line.split()[2:])
                continue
            field = _FIELD.match(line)
            if field is None:
                continue
            kind, text = field[1], field[2]
            if kind == "KEYS":
                contract.keys.append(text.split()[0])
            elif kind == "ARGV":
                argument, kind_of = text.split()[:2]
                contract.arguments.append((argument, kind_of))
            elif kind == "ITEMS":
                contract.item_name, _, fields = text.partition(" ")
                pairs = [pair.split() for pair in fields.split(",")]
                contract.item_fields = [(pair[0], pair[1]) for pair in pairs]
            else:
                contract.replies.extend(re.findall(r"\b[A-Z][A-Z_]+\b", text))
        if not contract.keys:
            raise ValueError(f"{name}.lua: no KEYS line")
        return contract

    def locals(self) -> str:
        out = [f"local {key} = KEYS[{i}]" for i, key in enumerate(self.keys, 1)]
        for i, (argument, kind) in enumerate(self.arguments, 1):
            out.append(f"local {argument} = {_typed(f'ARGV[{i}]', kind)}")
        if self.item_fields:
            fixed, width, item = len(self.arguments), len(self.item_fields), self.item_name
            values = ", ".join(
                _typed(f"ARGV[at + {i}]", kind) for i, (_, kind) in enumerate(self.item_fields, 1)
            )
            out.append(f"local {item}_count = math.floor((#ARGV - {fixed}) / {width})")
            out.append(
                f"local function {item}(i) local at = {fixed} + (i - 1) * {width} return {values} end"
            )
        return "\n".join(out)


def _typed(expression: str, kind: str) -> str:
    if kind == "int":
        return f"tonumber({expression})"
    if kind == "flag":
        return f"({expression} == '1')"
    return expression


def _read(name: str) -> str:
    return resources.files(__name__).joinpath(f"{name}.lua").read_text(encoding="utf-8")


def _strip(text: str) -> str:
    """Without comment lines and indentation: less to send where a script must be loaded anew."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("--"))
