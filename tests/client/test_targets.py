from __future__ import annotations

import sys
import tarfile

import numpy as np
import pytest

import rowwise
from rowwise._archive import pack
from rowwise.errors import CannotLoad, WrongInputs
from rowwise.input_specs import length_inputs, merged, normalized
from rowwise.targets import load_target, resolve

_MODULE = """
import numpy as np
INPUTS = {"x": np.zeros((2, 3), np.float32), "n": {"dtype": "int32", "shape": []}}
SPEC = {"inputs": {"x": {"note": "kept"}}, "max_batch": 8}

def predict(x, n):
    return x

def examples():
    for n in range(100):
        yield {"x": np.full((2, 3), n), "n": n}

class nested:
    @staticmethod
    def other(x, n):
        return n
"""


@pytest.fixture
def module_dir(tmp_path, monkeypatch):
    """A directory with the module ``shapes_of_rows``, which the process is in; nothing of it stays behind."""
    (tmp_path / "shapes_of_rows.py").write_text(_MODULE)
    (tmp_path / "broken_rows.py").write_text("raise RuntimeError('no weights')")
    (tmp_path / "needy_rows.py").write_text("import no_such_library")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("shapes_of_rows", "broken_rows", "needy_rows"):
        sys.modules.pop(name, None)


def test_a_module_says_its_inputs_and_options(module_dir):
    target = load_target("shapes_of_rows:predict")

    assert target.value.__name__ == "predict"
    assert target.inputs == {
        "x": {"dtype": "float32", "shape": [2, 3], "note": "kept"},
        "n": {"dtype": "int32", "shape": []},
    }
    assert target.spec["max_batch"] == 8


def test_a_module_gives_its_first_examples_along(module_dir):
    examples = load_target("shapes_of_rows:predict").spec["examples"]

    assert [example["n"] for example in examples] == list(range(16))


def test_a_module_whose_examples_fail_is_told_so(module_dir):
    (module_dir / "late_rows.py").write_text("def predict(x): return x\ndef examples(): raise OSError('disk')")

    with pytest.raises(CannotLoad, match=r"late_rows\.examples\(\) failed: OSError: disk"):
        load_target("late_rows.py")


@pytest.mark.parametrize("text", ["shapes_of_rows", "shapes_of_rows.py", "./shapes_of_rows.py:predict"])
def test_predict_is_what_a_module_alone_means_by_name_or_by_file(module_dir, text):
    assert load_target(text).value.__name__ == "predict"


def test_an_attribute_may_be_nested(module_dir):
    assert load_target("shapes_of_rows:nested.other").value(1, 2) == 2


def test_a_module_is_not_changed_by_being_read(module_dir):
    first, second = load_target("shapes_of_rows"), load_target("shapes_of_rows")

    assert (first.value, first.inputs, first.spec["max_batch"]) == (second.value, second.inputs, 8)
    assert sys.modules["shapes_of_rows"].SPEC == {"inputs": {"x": {"note": "kept"}}, "max_batch": 8}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("no_such_module:predict", "there is no module 'no_such_module'"),
        ("no_such_package.module:predict", "there is no module 'no_such_package.module'"),
        ("shapes_of_rows:missing", "module 'shapes_of_rows' has no 'missing'"),
        ("broken_rows:predict", "importing 'broken_rows' failed: RuntimeError: no weights"),
        ("needy_rows:predict", "importing 'needy_rows' failed: No module named 'no_such_library'"),
        ("broken_rows.py:predict", "running broken_rows.py failed: RuntimeError: no weights"),
        ("missing.py:predict", "missing.py: no such file"),
        ("./missing_dir", "no such file or directory"),
        ("missing.tar.gz", "no such file or directory"),
        (".", "neither a SavedModel directory"),
    ],
)
def test_what_is_not_there_is_said_in_a_sentence(module_dir, text, sentence):
    with pytest.raises(CannotLoad, match=sentence):
        load_target(text)


def test_a_path_is_a_saved_model_directory_or_an_archive(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"graph")
    (tmp_path / "model.zip").write_bytes(b"zip")

    assert load_target(str(tmp_path / "model")).value == tmp_path / "model"
    assert resolve(str(tmp_path / "model.zip")).value == tmp_path / "model.zip"


def test_a_decorated_function_is_itself_and_carries_its_declaration():
    @rowwise.example_model(inputs={"x": {"dtype": "float32", "shape": [4]}}, max_batch=32)
    def double(x):
        return 2 * x

    target = resolve(double)

    assert double(4) == 8
    assert target.value is double
    assert target.inputs == {"x": {"dtype": "float32", "shape": [4]}}
    assert target.spec == {"max_batch": 32}


def test_a_wrong_declaration_is_refused_where_it_is_made():
    with pytest.raises(WrongInputs, match="input 'x'"):
        rowwise.example_model(inputs={"x": {"dtype": "float32"}})


def test_inputs_in_every_form_become_one():
    class Spec:
        shape = (None, 32)
        dtype = np.dtype(np.int64)

    assert normalized(
        {
            "array": np.zeros((2, 2), np.float16),
            "number": np.float64(1),
            "text": np.array("word"),
            "spec": Spec(),
            "written": {"dtype": np.float32, "shape": (None,), "max": 9, "length_input": "n"},
        }
    ) == {
        "array": {"dtype": "float16", "shape": [2, 2]},
        "number": {"dtype": "float64", "shape": []},
        "text": {"dtype": "string", "shape": []},
        "spec": {"dtype": "int64", "shape": [None, 32]},
        "written": {"dtype": "float32", "shape": [None], "max": 9, "length_input": "n"},
        "n": {"dtype": "int32", "shape": []},
    }


def test_a_length_input_that_is_declared_keeps_its_dtype():
    forms = normalized(
        {
            "x": {"dtype": "float32", "shape": [None], "max": 9, "length_input": "n"},
            "n": {"dtype": "int64", "shape": []},
        }
    )

    assert length_inputs(forms) == ("n",)
    assert forms["n"]["dtype"] == "int64"


def test_details_of_an_input_that_is_not_there_are_refused():
    with pytest.raises(WrongInputs, match="details for 'y': no such input; there is x"):
        merged({"x": np.zeros(2)}, {"y": {"max": 3}})


def test_an_archive_holds_the_files_from_the_top_and_is_the_same_each_time(tmp_path):
    model = tmp_path / "model"
    (model / "variables").mkdir(parents=True)
    (model / "saved_model.pb").write_bytes(b"graph")
    (tmp_path / "weights").write_bytes(b"w" * 100)
    (model / "variables" / "variables.index").symlink_to(tmp_path / "weights")

    first = pack(model, tmp_path / "first.tar.gz").read_bytes()
    second = pack(model, tmp_path / "second.tar.gz").read_bytes()

    assert first == second
    with tarfile.open(tmp_path / "first.tar.gz") as tar:
        assert [(entry.name, entry.isreg(), entry.size) for entry in tar] == [
            ("saved_model.pb", True, 5),
            ("variables/variables.index", True, 100),
        ]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of NumPy 2, when Keras writes
def test_a_keras_file_is_loaded_without_the_code_that_came_with_it(tmp_path):
    keras = pytest.importorskip("keras")
    keras.Sequential([keras.Input([3], name="x"), keras.layers.Dense(2)]).save(tmp_path / "plain.keras")
    assert load_target(str(tmp_path / "plain.keras")).value.count_params() == 8
    with_code = keras.Sequential([keras.Input([3], name="x"), keras.layers.Lambda(lambda x: x * 2)])
    with_code.save(tmp_path / "code.keras")
    with pytest.raises(CannotLoad, match=r"code\.keras could not be loaded in Keras' safe mode: .*[Ll]ambda"):
        load_target(str(tmp_path / "code.keras"))
    (tmp_path / "old.h5").write_bytes(b"\x89HDF")
    with pytest.raises(CannotLoad, match="older Keras, which may hold Python code"):
        load_target(str(tmp_path / "old.h5"))
