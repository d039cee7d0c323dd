"""Images by file as inputs: their pixels as they are, and what options do to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from rowwise.cli import app
from rowwise.cli.images import ImageOptions, UnfitImage, fraction, read_image

GRAY = np.arange(6, dtype=np.uint8).reshape(2, 3) * 50
FLOAT = np.dtype("float32")


@pytest.fixture
def gray(tmp_path: Path) -> Path:
    Image.fromarray(GRAY).save(tmp_path / "gray.png")
    return tmp_path / "gray.png"


@pytest.fixture
def colours(tmp_path: Path) -> Path:
    Image.fromarray(np.arange(18, dtype=np.uint8).reshape(2, 3, 3)).save(tmp_path / "colours.png")
    return tmp_path / "colours.png"


def read(path: Path, shape: tuple[int | None, ...] | None, dtype: Any = FLOAT, **options: Any) -> np.ndarray:
    return read_image(path, options=ImageOptions(**options), shape=shape, dtype=dtype)


def test_pixels_are_sent_as_the_file_has_them(gray: Path, colours: Path) -> None:
    for shape, expected in (
        ((2, 3), GRAY),
        ((2, 3, 1), GRAY[..., None]),
        ((1, 2, 3), GRAY[None]),
        ((6,), GRAY.ravel()),
        ((None, None), GRAY),
        (None, GRAY),
    ):
        found = read(gray, shape)
        assert found.dtype == FLOAT
        np.testing.assert_array_equal(found, expected)
    assert read(colours, (2, 3, 3), np.dtype("uint8")).tolist() == np.arange(18).reshape(2, 3, 3).tolist()


def test_channels_come_first_where_they_are_asked_to(colours: Path) -> None:
    first = read(colours, (3, 2, 3), layout="chw")
    np.testing.assert_array_equal(first, np.arange(18).reshape(2, 3, 3).transpose(2, 0, 1))


def test_mode_size_scale_and_offset_are_as_asked(colours: Path, gray: Path) -> None:
    with Image.open(colours) as image:
        expected = np.asarray(image.convert("L").resize((8, 4), Image.Resampling.BICUBIC))
    assert read(colours, (4, 8), mode="L", size=(8, 4), resampling="bicubic").tolist() == expected.tolist()
    assert read(gray, (4, 8), size="model").shape == (4, 8)
    assert read(colours, (3, 4, 8), size="model", layout="chw").shape == (3, 4, 8)
    np.testing.assert_allclose(read(gray, (2, 3), scale=fraction("1/255"), offset=-0.5), GRAY / 255 - 0.5, rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "options", "says"),
    [
        ((8, 8), {}, "--image-size"),
        ((2, 3, 3), {}, "--image-mode"),
        ((6,), {"size": "model"}, "fixes no size"),
        ((None, None), {"size": "model"}, "fixes no size"),
    ],
)
def test_what_does_not_fit_names_the_option_that_helps(gray: Path, shape: Any, options: Any, says: str) -> None:
    with pytest.raises(UnfitImage, match=says):
        read(gray, shape, **options)


def test_what_is_no_image_or_not_one_of_numbers_is_refused(tmp_path: Path, gray: Path) -> None:
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(UnfitImage, match="can't be read as a PNG or JPEG"):
        read(tmp_path / "text.png", None)
    Image.fromarray(GRAY).convert("P").save(tmp_path / "palette.png")
    with pytest.raises(UnfitImage, match="mode P"):
        read(tmp_path / "palette.png", (2, 3))
    with pytest.raises(UnfitImage, match="leave out --image-scale"):
        read(gray, (2, 3), np.dtype("int32"), scale=0.25)


def test_an_image_that_unpacks_to_gigabytes_is_refused(gray: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4)
    with pytest.raises(UnfitImage, match="can't be read"):
        read(gray, (2, 3))


def run(*arguments: object, input: str | None = None) -> Result:  # noqa: A002 - as the runner calls it
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(
        app, ["predict", *map(str, arguments)], input=input
    )


def test_predict_takes_an_image(url: str, gray: Path, server: Any) -> None:
    answer = json.loads(run("pixels", "--input", gray, "--url", url).stdout)
    assert answer == {"output": GRAY.tolist(), "note": "as sent"}
    server.pixels = ("DT_FLOAT", [4])
    small = run("pixels", "--input", gray, "--image-size", "2x2", "--image-scale", "1/255", "--url", url)
    assert len(json.loads(small.stdout)["output"]) == 4
    wrong = run("pixels", "--input", gray, "--url", url)
    assert (wrong.exit_code, "--image-size" in wrong.stderr) == (2, True)
    assert run("pixels", "--input", gray, "--image-size", "2", "--url", url).exit_code == 2
    assert run("pixels", "--input", gray, "--image-scale", "1/0", "--url", url).exit_code == 2


def test_an_image_for_one_of_several_inputs_is_named(url: str, gray: Path) -> None:
    answer = run("describe", "--input", gray, "--url", url)
    assert (answer.exit_code, "--input NAME=" in answer.stderr) == (2, True)


def lines(answer: Result) -> list[Any]:
    assert answer.exit_code == 0, answer.output
    return [json.loads(line) for line in answer.stdout.splitlines()]


def test_predict_takes_many_examples_of_every_kind(url: str, tmp_path: Path, gray: Path) -> None:
    (tmp_path / "some.jsonl").write_text("1\n\n[2, 3]\n")
    np.save(tmp_path / "some.npy", np.arange(600, dtype=np.float32))
    np.savez(tmp_path / "both.npz", text=np.array(["a", "bc"]), times=np.array([1, 2]))

    assert lines(run("double", "--examples", tmp_path / "some.jsonl", "--url", url)) == [2.0, [4.0, 6.0]]
    assert lines(run("double", "--examples", "-", "--url", url, input="4\n5\n")) == [8.0, 10.0]
    assert lines(run("double", "--examples", tmp_path / "some.npy", "--url", url)) == [2.0 * n for n in range(600)]
    described = lines(run("describe", "--examples", tmp_path / "both.npz", "--url", url))
    assert described == [{"upper": "A", "count": 1}, {"upper": "BCBC", "count": 2}]
    both = lines(run("pixels", "--examples", gray, "--examples", gray, "--url", url))
    assert [each["output"] for each in both] == [GRAY.tolist(), GRAY.tolist()]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("bad.jsonl", b"1\n{\n", "bad.jsonl:2"),
        ("absent.jsonl", None, "can't be read"),
        ("scalar.npy", np.float32(1), "first axis"),
        ("some.txt", b"1", "expected .jsonl"),
    ],
)
def test_what_holds_no_examples_says_what_was_expected(
    url: str, tmp_path: Path, name: str, content: Any, says: str
) -> None:
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content)
    answer = run("double", "--examples", path, "--url", url)
    assert answer.exit_code == 2
    assert says in " ".join(answer.stderr.replace("│", " ").split())


def test_one_kind_of_examples_is_enough(url: str) -> None:
    assert run("double", "--json", "1", "--examples", "-", "--url", url).exit_code == 2


def test_a_failure_after_some_answers_says_after_how_many(url: str, tmp_path: Path) -> None:
    (tmp_path / "some.jsonl").write_text("1\n" * 300 + '"text"\n')
    answer = run("double", "--examples", tmp_path / "some.jsonl", "--url", url)
    assert answer.exit_code == 1
    assert len(answer.stdout.splitlines()) == 256
    assert "after 256 examples that were answered" in answer.stderr
