"""Mutants of our own code: one function in which a few characters are others, for as long as a test runs."""

import ast
import contextlib
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType
from typing import Any

__all__ = ["Mutant", "Stale"]


class Stale(Exception):
    """The code has moved on, and the mutant must follow: what it would change is not there, or more than once."""


@dataclass(frozen=True)
class Mutant:
    """One defect that somebody might write.

    Attributes:
        name: What it is.
        where: The function: ``module:qualified.name``.
        old: What its source has exactly once, without the indentation of the function.
        new: What the mutant has instead.
        killers: The simulations that must notice, the one that does so soonest first.
        most: How many of their seeds it may survive.
        besides: Others that live with it: what two defences keep out, one of them alone does not let in.
    """

    name: str
    where: str
    old: str
    new: str
    killers: tuple[str, ...]
    most: int = 2000
    besides: "tuple[Mutant, ...]" = ()

    @contextlib.contextmanager
    def living(self) -> Iterator[None]:
        """The mutant is in place meanwhile, for everybody who has imported the function."""
        function = self._function()
        original = function.__code__
        with contextlib.ExitStack() as others:
            for other in self.besides:
                others.enter_context(other.living())
            function.__code__ = self._changed(function)
            try:
                yield
            finally:
                function.__code__ = original

    def _function(self) -> FunctionType:
        module, _, path = self.where.partition(":")
        owner: Any = importlib.import_module(module)
        *outer, name = path.split(".")
        for part in outer:
            owner = getattr(owner, part)
        found = inspect.getattr_static(owner, name)
        function = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        assert isinstance(function, FunctionType)
        return function

    def _changed(self, function: FunctionType) -> CodeType:
        source = _source(function)
        if source.count(self.old) != 1:
            raise Stale(f"{self.name}: {self.where} has {self.old!r} {source.count(self.old)} times")
        definition = ast.parse(source.replace(self.old, self.new)).body[0]
        assert isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef))
        definition.decorator_list = []
        found: dict[str, Any] = {}
        # In a class, whose name mangles nothing: there ``super()`` stands for what it does in the original.
        owner = ast.parse("class _: pass").body[0]
        assert isinstance(owner, ast.ClassDef)
        owner.body = [definition]
        tree = ast.Module([owner], [])
        exec(compile(tree, f"<{self.name}>", "exec"), dict(function.__globals__), found)
        code = inspect.getattr_static(found["_"], function.__name__).__code__
        assert isinstance(code, CodeType)
        return code


@cache
def _source(function: FunctionType) -> str:
    return textwrap.dedent(inspect.getsource(function))
