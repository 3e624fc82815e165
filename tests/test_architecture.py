"""What is said of the code's rooms, words and ways is so: whatever moves or is renamed is told there too."""

import ast
import graphlib
import pkgutil
import re
import sys
import threading
import tomllib
from functools import cache
from pathlib import Path

import pytest

import flow
from publishers import ChangeLog, Criterion, upsert
from publishers.mutations.rows import columns_of

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
(GUIDE,) = re.findall(
    r"^## Where to change what$(.*?)^## ", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL | re.MULTILINE
)
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
TOP = ("flow", "publishers", "transports")
MAPPED = (*TOP, "publishers.wal")


def items(text):
    """Rows of tables, and paragraphs."""
    for block in re.split(r"\n\n+", text):
        yield from block.splitlines() if block.startswith("|") else [block]


def quoted(text):
    return re.findall(r"`([^`\n]+)`", text)


def is_path(token):
    return re.fullmatch(r"\w[\w.-]*(/[\w.-]+)+|[\w-]+\.(toml|md|py)", token) is not None


def is_name(token):
    """Whether it names a class, a function, a member or a constant, and not a word, an option or a method of users."""
    camel = re.fullmatch(r"_?([A-Z][a-z]+){2,}|[A-Z][a-z]+", token)
    return bool(camel or re.fullmatch(r"\w+\(\)|_?[A-Z]\w*(\.\w+)+|_[A-Z_]+", token))


def targets(node):
    match node:
        case ast.Assign():
            return node.targets
        case ast.AnnAssign():
            return [node.target]
    return []


@cache
def defined(path):
    """The names that a module defines: functions, classes, constants, and members as ``Class.member``."""
    functions = ast.FunctionDef | ast.AsyncFunctionDef

    def names_in(body):
        found = {node.name for node in body if isinstance(node, functions | ast.ClassDef)}
        return found | {one.id for node in body for one in targets(node) if isinstance(one, ast.Name)}

    tree = ast.parse((ROOT / path).read_text())
    found = names_in(tree.body)
    for one in tree.body:
        if isinstance(one, ast.ClassDef):
            fields = [field for node in ast.walk(one) for field in targets(node)]
            members = {field.attr for field in fields if isinstance(field, ast.Attribute)}
            found |= {f"{one.name}.{member}" for member in members | names_in(one.body)}
    return found


def missing(text):
    """What a text names that is not there: paths in the tree, and names in the modules that the same item names."""
    lost = []
    for item in items(text):
        tokens = quoted(item)
        paths = [token for token in tokens if is_path(token)]
        lost += [path for path in paths if not (ROOT / path).exists()]
        modules = [path for path in paths if path.endswith(".py") and (ROOT / path).exists()]
        for token in tokens:
            if token.startswith(tuple(f"{package}." for package in TOP)):
                try:
                    pkgutil.resolve_name(token)
                except (ImportError, AttributeError):
                    lost.append(token)
            elif is_name(token) and token not in KNOWN:
                name = token.removesuffix("()")
                if not any(name in defined(path) for path in modules):
                    lost.append(f"{token} in {', '.join(modules) or 'no module'}")
    return lost


KNOWN = {*defined("publishers/errors.py"), "Change", "Flow"}
"""What needs no module beside it."""


@pytest.mark.parametrize("text", [PAGE, GUIDE], ids=["architecture", "contributing"])
def test_every_module_and_every_name_that_is_told_exists(text):
    assert missing(text) == []


def test_what_is_not_there_is_noticed():
    ring = "`publishers/fanout/ring.py`"
    assert missing(f"{ring} `Ring.poll`, `Ring.link`, `NOWHERE`, and `flow.INLINE`") == []
    assert missing("`publishers/fanout/rings.py`") == ["publishers/fanout/rings.py"]
    assert missing(f"{ring} `Ring.pull`, `flow.OUTLINE`") == [
        "Ring.pull in publishers/fanout/ring.py",
        "flow.OUTLINE",
    ]
    assert missing(f"`Ring.poll`\n\n{ring}") == ["Ring.poll in no module"]


def rooms(container):
    """The paths in the first column of a container's map, row by row."""
    (table,) = re.findall(
        rf"^### {container.replace('.', '/')}: .*?^\|---\|---\|\n(.*?)\n\n", PAGE, re.DOTALL | re.MULTILINE
    )
    return [quoted(row.split("|")[1]) for row in table.splitlines()]


def test_the_map_names_every_package():
    packages = {
        str(path.parent.relative_to(ROOT))
        for package in TOP
        for path in (ROOT / package).rglob("__init__.py")
    }
    named = {room for container in MAPPED for row in rooms(container) for room in row}
    assert packages - set(TOP) - named == set()


@pytest.mark.parametrize("container", MAPPED)
def test_the_rows_of_a_map_are_layers_from_the_top(container):
    (contract,) = (one for one in CONTRACTS if one.get("containers") == [container])
    layer_of = {
        module.strip(): number
        for number, layer in enumerate(contract["layers"])
        for module in layer.split("|")
    }
    rows = [
        {layer_of[room.removesuffix(".py").rpartition("/")[2]] for room in row} for row in rooms(container)
    ]
    assert all(len(row) == 1 for row in rows), "rooms that share a row are in one layer"
    layers = [number for row in rows for number in row]
    assert layers == sorted(set(layers)), "a lower row is a lower layer"


def imports(path, modules):
    """The modules that one imports, wherever in it, and also for its types only."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else node.module for name in names]
        else:
            continue
        yield from modules & set(names)


def module_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_no_modules_import_each_other_in_a_circle():
    paths = {module_of(path): path for package in TOP for path in (ROOT / package).rglob("*.py")}
    graph = {module: set(imports(path, paths.keys())) for module, path in paths.items()}
    assert graph["flow.broadcast.broadcast"] >= {"flow.broadcast.hub", "flow.drain"}
    graphlib.TopologicalSorter(graph).prepare()


def test_no_class_has_the_name_of_another_one():
    places = {}
    for package in (*TOP, "examples/flights/penstock_flights"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert len(places) > 500
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


# The journeys, held against a run.


class Subscriber:
    def __init__(self):
        self.came = threading.Event()

    def on_subscribe(self, subscription):
        self.subscription = subscription

    def on_next(self, _change):
        self.came.set()

    def on_error(self, error): ...
    def on_complete(self): ...


class Trace:
    """Every function of ours that is entered inside, on any thread that begins inside or is this one."""

    def __enter__(self):
        self.entered = []
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame, event, _argument):
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            path = str(Path(frame.f_code.co_filename).relative_to(ROOT))
            self.entered.append((path, frame.f_code.co_qualname))


def told(journey):
    """The functions of a journey, in order, each with the modules of its row."""
    (text,) = re.findall(rf"^### {journey}$(.*?)^##", PAGE, re.DOTALL | re.MULTILINE)
    for row in re.findall(r"^\|(.*\..*)\|$", text, re.MULTILINE):
        functions, modules, _ = row.split("|")
        for name in quoted(functions):
            yield name.removesuffix("()"), quoted(modules)


def check_order(journey, entered):
    rest = iter(entered)
    functions = list(told(journey))
    assert len(functions) > 10
    for name, modules in functions:
        assert any(one == name and path in modules for path, one in rest), f"{name} is not entered there"


@pytest.fixture
def log(tmp_path):
    with ChangeLog.open(tmp_path) as opened:
        yield opened


def orders(*keys):
    return [upsert("order", key, {"total": 1}) for key in keys]


def test_a_wish_goes_to_the_index_as_it_is_told(log):
    wish = Criterion(entity_types={"order"})
    with Trace() as trace:
        log.changes(wish).subscribe(Subscriber(), executor=flow.INLINE)
    check_order("A subscription to the index", trace.entered)


def test_a_batch_goes_to_on_next_as_it_is_told(log):
    subscriber = Subscriber()
    log.changes(Criterion(entity_types={"order"})).subscribe(subscriber, executor=flow.INLINE)
    subscriber.subscription.request(2)
    with Trace() as trace:
        log.commit_columns(iter([columns_of(orders("1", "2"))]))
    assert subscriber.came.is_set()
    check_order("From the log to on_next", trace.entered)


def test_a_request_goes_to_the_ring_as_it_is_told(log):
    subscriber = Subscriber()
    log.changes().subscribe(subscriber, executor=flow.INLINE)
    log.commit(orders("1"))
    with Trace() as trace:
        subscriber.subscription.request(2)
    assert subscriber.came.is_set()
    check_order("A request that the ring answers", trace.entered)


def test_a_request_goes_to_the_log_as_it_is_told(log):
    subscriber = Subscriber()
    log.commit(orders("1"))
    log.changes(since="earliest").subscribe(subscriber, executor=flow.INLINE)
    with Trace() as trace:
        subscriber.subscription.request(2)
        assert subscriber.came.wait(60)
    check_order("A request that the log answers", trace.entered)
