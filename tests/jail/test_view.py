"""What a view becomes: every path where it really is, parents first, links made again, hidden parts taken out."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.jail.landlock import LIST, READ, WRITE, rules
from server.jail.view import Kind, Step, View, existing, steps


def tree(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
    return root


def told(found: list[Step], root: Path) -> list[tuple[str, Kind]]:
    return [(str(step.path.relative_to(root)), step.kind) for step in found]


def test_what_is_hidden_in_a_directory_and_shown_in_that_again_comes_in_the_order_of_depth(tmp_path: Path) -> None:
    tree(tmp_path, "code/a.py", "code/store/models/m/1/staging/", "code/store/models/other/")
    view = View(
        readable=(tmp_path / "code",),
        hidden=(tmp_path / "code/store",),
        writable=(tmp_path / "code/store/models/m/1/staging",),
    )
    assert told(steps(view), tmp_path) == [
        ("code", Kind.READABLE),
        ("code/store", Kind.HIDDEN),
        ("code/store/models/m/1/staging", Kind.WRITABLE),
    ]


def test_links_on_the_way_to_what_is_shown_are_made_again_and_what_they_lead_to_is_shown(tmp_path: Path) -> None:
    tree(tmp_path, "real/bin/python", "named/")
    (tmp_path / "named/venv").symlink_to("../real")
    (tmp_path / "real/bin/python3").symlink_to("python")
    found = steps(View(readable=(tmp_path / "named/venv/bin/python3",)))
    assert Step(tmp_path / "named/venv", Kind.LINK, "../real") in found
    assert Step(tmp_path / "real/bin/python3", Kind.LINK, "python") in found
    assert Step(tmp_path / "real/bin/python", Kind.READABLE) in found


def test_what_lies_in_something_shown_is_not_mounted_again(tmp_path: Path) -> None:
    tree(tmp_path, "a/b/c", "a/b/d")
    (tmp_path / "a/link").symlink_to("b")
    view = View(readable=(tmp_path / "a/b/c", tmp_path / "a", tmp_path / "a/link/d"))
    assert told(steps(view), tmp_path) == [("a", Kind.READABLE)]


def test_a_directory_that_is_only_listed_is_made_with_what_is_shown_in_it(tmp_path: Path) -> None:
    tree(tmp_path, "code/package/a.py", "code/secret")
    found = steps(View(readable=(tmp_path / "code/package",), listed=(tmp_path / "code",)))
    assert told(found, tmp_path) == [("code", Kind.LISTED), ("code/package", Kind.READABLE)]
    allowed = rules(found)
    assert (str(tmp_path / "code"), LIST) in allowed
    assert (str(tmp_path / "code"), READ) not in allowed


def test_what_is_hidden_of_nothing_that_is_shown_is_not_mounted_at_all(tmp_path: Path) -> None:
    tree(tmp_path, "shown/", "elsewhere/")
    found = steps(View(readable=(tmp_path / "shown",), hidden=(tmp_path / "elsewhere",)))
    assert told(found, tmp_path) == [("shown", Kind.READABLE)]


def test_what_is_writable_is_so_though_it_is_named_readable_and_hidden_too(tmp_path: Path) -> None:
    tree(tmp_path, "out/")
    out = tmp_path / "out"
    assert told(steps(View(readable=(out,), hidden=(out,), writable=(out,))), tmp_path) == [("out", Kind.WRITABLE)]


def test_a_path_that_leads_nowhere_is_left_out_with_its_links(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("gone")
    assert steps(View(readable=(tmp_path / "dangling", tmp_path / "missing"))) == []


def test_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        steps(View(readable=(tmp_path / "a",)))


def test_a_directory_that_only_its_owner_may_enter_is_made_anew_for_another_user(tmp_path: Path) -> None:
    tree(tmp_path, "code/private/out/", "code/open/out/")
    (tmp_path / "code/private").chmod(0o700)
    view = View(readable=(tmp_path / "code",), writable=(tmp_path / "code/private/out", tmp_path / "code/open/out"))
    assert ("code/private", Kind.HIDDEN) not in told(steps(view), tmp_path)
    found = told(steps(view, for_another_user=True), tmp_path)
    assert ("code/private", Kind.HIDDEN) in found
    assert ("code/open", Kind.HIDDEN) not in found


def test_existing_paths_are_absolute_and_come_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, "a")
    monkeypatch.chdir(tmp_path)
    assert existing(["a", tmp_path / "a", "gone"]) == (tmp_path / "a",)


def test_landlock_allows_around_what_is_hidden(tmp_path: Path) -> None:
    tree(tmp_path, "code/a.py", "code/package/b.py", "code/store/models/m/out/", "code/store/secret", "code/.env")
    view = View(
        readable=(tmp_path / "code",),
        hidden=(tmp_path / "code/store", tmp_path / "code/.env"),
        writable=(tmp_path / "code/store/models/m/out",),
    )
    allowed = rules(steps(view))
    ours = {(str(Path(path).relative_to(tmp_path)), right) for path, right in allowed if path.startswith(str(tmp_path))}
    assert ours == {
        ("code", LIST),
        ("code/a.py", READ),
        ("code/package", READ),
        ("code/store/models/m/out", WRITE),
    }
