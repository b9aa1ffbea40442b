"""The public surface is written down: a change to it shows as a diff of ``public_api.txt``, and wants a changelog line.

Write it anew with ``python tests/test_public_api.py > tests/public_api.txt``.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import litmuskit

RECORDED = Path(__file__).with_name("public_api.txt")


def word_signature(thing: Any) -> str:
    """The signature, its annotations without the quotes that postponed evaluation leaves on them."""
    return re.sub(r"""(?<=: |> )(["'])(.*?)\1""", r"\2", str(inspect.signature(thing))).replace("litmuskit.", "")


def describe_class(path: str, kind: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in kind.__bases__ if base is not object)
    yield f"class {path}({bases})"
    if issubclass(kind, BaseException):
        return
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    if "__init__" in vars(kind) or hasattr(kind, "__struct_fields__"):
        yield f"    {word_signature(kind)}"
    for name, member in sorted(inspect.getmembers_static(kind)):
        plain = getattr(member, "__func__", member)
        ours = str(getattr(getattr(plain, "fget", plain), "__module__", "")).startswith("litmuskit")
        if name.startswith("_") or name in fields or not ours:
            continue
        if isinstance(member, property):
            yield f"    {name}: property"
        elif inspect.isfunction(plain):
            mark = f"{type(member).__name__} " if plain is not member else ""
            yield f"    {mark}{name}{word_signature(plain)}"


def describe_module(path: str, module: ModuleType) -> Iterator[str]:
    for name in sorted(module.__all__):
        thing = getattr(module, name)
        full = f"{path}.{name}"
        if isinstance(thing, ModuleType):
            yield f"module {full}"
            yield from describe_module(full, thing)
        elif inspect.isclass(thing):
            yield from describe_class(full, thing)
        elif inspect.isfunction(thing):
            yield f"def {full}{word_signature(thing)}"
        elif isinstance(thing, tuple | frozenset) and all(isinstance(item, str) for item in thing):
            yield f"{full} = {' | '.join(sorted(thing) if isinstance(thing, frozenset) else thing)}"
        else:
            yield f"{full}: {type(thing).__name__}"


def describe_surface() -> list[str]:
    return list(describe_module("litmuskit", litmuskit))


def test_the_public_surface_is_the_recorded_one():
    assert describe_surface() == RECORDED.read_text(encoding="utf-8").splitlines(), "see this file's docstring"


def test_every_public_name_resolves_and_is_listed():
    assert sorted(litmuskit.__all__) == list(dict.fromkeys(sorted(litmuskit.__all__)))
    assert set(litmuskit.__all__) <= set(dir(litmuskit))


def test_every_public_function_is_documented():
    functions = [thing for name in litmuskit.__all__ if inspect.isroutine(thing := getattr(litmuskit, name))]
    assert not [thing.__name__ for thing in functions if not inspect.getdoc(thing)]


def test_the_errors_are_one_tree():
    kinds = [thing for name in litmuskit.__all__ if name.endswith("Error") and (thing := getattr(litmuskit, name))]
    assert all(issubclass(kind, litmuskit.LitmusError) for kind in kinds)


if __name__ == "__main__":
    sys.stdout.write("\n".join(describe_surface()) + "\n")
