"""The package that users import: names of the others, few, typed, and imported when they are used."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import penstock_cdc
import publishers
import transports
from transports.errors import ExtraMissing

HOME = Path(penstock_cdc.__file__).parent
MODULES = sorted(path.stem for path in HOME.glob("*.py") if path.stem != "__init__")


def parsed(module):
    return ast.parse((HOME / f"{module}.py").read_text())


def test_it_has_at_most_60_names():
    assert len(penstock_cdc.__all__) == len(set(penstock_cdc.__all__)) <= 60


def test_type_checkers_see_the_names_that_there_are():
    """For them the names are imported; at run time each is found in the package that has it."""
    seen = {
        alias.name: node.module
        for node in ast.walk(parsed("__init__"))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen.pop("import_module") == "importlib"
    assert seen.keys() == {*penstock_cdc.__all__, "LinkProtocol"}
    for name, module in seen.items():
        assert getattr(penstock_cdc, name) is getattr(importlib.import_module(module), name), name
        room = importlib.import_module(module.partition(".")[0])
        assert name in room.__all__ or name == "LinkProtocol"


def test_its_modules_are_there_without_an_import_of_their_own():
    assert set(MODULES) <= set(dir(penstock_cdc))
    for name in MODULES:
        assert getattr(penstock_cdc, name) is sys.modules[f"penstock_cdc.{name}"]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_what_it_exports(module):
    loaded = importlib.import_module(f"penstock_cdc.{module}")
    assert loaded.__all__
    assert len(loaded.__all__) == len(set(loaded.__all__))
    for name in loaded.__all__:
        assert hasattr(loaded, name), name


@pytest.mark.parametrize("module", ["__init__", *MODULES])
def test_it_defines_nothing(module):
    """But how names are found on first use."""
    for node in parsed(module).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            assert node.name in {"__getattr__", "__dir__"}


def test_what_is_raised_is_an_error_and_what_is_an_error_is_there():
    errors = set(penstock_cdc.errors.__all__) - {"CloseCode"}
    assert all(issubclass(getattr(penstock_cdc.errors, name), Exception) for name in errors)
    for room in (publishers, transports):
        for name in room.__all__:
            found = getattr(room, name)
            if isinstance(found, type) and issubclass(found, Exception):
                assert name in errors, name


def test_every_public_name_is_in_it_or_in_one_of_its_modules():
    told = set(penstock_cdc.__all__)
    for module in ("errors", "fields", "mutations", "types"):
        told |= set(getattr(penstock_cdc, module).__all__)
    assert {*publishers.__all__, *transports.__all__} - told == set()


@pytest.mark.parametrize(
    "package", ["flow", "publishers.spark", "transports.sinks", "flow.tck", "publishers.lossless"]
)
def test_a_list_that_it_takes_over_is_written_out(package):
    """Mypy follows no list that is put together of others."""
    module = importlib.import_module(package)
    lists = [
        node.value
        for node in ast.parse(Path(module.__file__).read_text()).body
        if isinstance(node, ast.Assign | ast.AugAssign) and "__all__" in ast.unparse(node)
    ]
    assert [ast.literal_eval(one) for one in lists] == [module.__all__]


def test_a_log_shows_what_programs_use():
    """What the transports, Spark and the store use of it besides is behind one attribute."""
    assert len([name for name in dir(penstock_cdc.ChangeLog) if not name.startswith("_")]) <= 40


def test_importing_it_imports_nothing_else():
    """Counted in modules: seconds depend on the machine."""
    code = "import sys, importlib; before = {*sys.modules}; import penstock_cdc; print(*({*sys.modules} - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["penstock_cdc"]


def test_a_name_that_is_not_there_is_refused():
    for module in (penstock_cdc, penstock_cdc.sinks):
        with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'Nothing'"):
            _ = module.Nothing


def test_a_sink_whose_client_is_not_installed_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "transports.sinks.webhook", None)
    monkeypatch.delitem(vars(penstock_cdc.sinks), "WebhookSink", raising=False)
    with pytest.raises(ExtraMissing, match=r"WebhookSink needs .* pip install 'penstock-cdc\[webhook\]'"):
        _ = penstock_cdc.sinks.WebhookSink
