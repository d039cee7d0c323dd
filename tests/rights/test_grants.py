"""What tokens grant: scopes, models by pattern, rates."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.rights import Grant, Keyring, Rates, Scope, TokenEntry, digest_of


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def entry(name: str, **more: object) -> TokenEntry:
    digest = digest_of(name.encode()).hex()
    return TokenEntry.model_validate({"name": name, "sha256": digest, "scopes": ["predict"], **more})


@pytest.mark.parametrize(
    ("patterns", "fits", "fits_not"),
    [
        (["rank-*"], ["rank-", "rank-a.b"], ["rank", "Rank-a", "xrank-a", "rank-a\nb"[:4]]),
        (["a", "b?"], ["a", "bc"], ["aa", "b", "bcd", "A"]),
        (["v[0-9]"], ["v1"], ["vx", "v10"]),
        (["*"], ["anything", ""], []),
        (["team.*"], ["team.x"], ["teamsx"]),
    ],
)
def test_models_are_in_reach_by_patterns_on_their_names(
    patterns: list[str], fits: list[str], fits_not: list[str]
) -> None:
    grant = Grant("a", [Scope.PREDICT], patterns)
    for _ in range(2):  # the second time it is remembered
        assert all(map(grant.covers, fits))
        assert not any(map(grant.covers, fits_not))
    assert grant.is_unrestricted == (patterns == ["*"])


def test_made_up_names_are_not_remembered_without_bound() -> None:
    grant = Grant("a", [Scope.PREDICT], ["x*"])
    for number in range(5_000):
        assert not grant.covers(f"made-up-{number}")
    assert len(grant._covered) <= 1_024


def test_who_manages_may_read_but_not_predict() -> None:
    assert Grant("a", [Scope.MANAGE]).scopes == {Scope.MANAGE, Scope.READ}


def test_a_bucket_lets_a_burst_pass_then_its_rate_and_says_how_long_to_wait() -> None:
    clock = Clock()
    rate = Rates(clock=clock).rate(b"key", per_s=2.0, burst=3.0)
    assert [rate.take() for _ in range(3)] == [0.0] * 3
    assert rate.take() == pytest.approx(0.5)
    assert rate.take() == pytest.approx(0.5), "who is refused pays nothing"
    clock.now_s += 0.5
    assert rate.take() == 0.0
    assert rate.take() > 0.0
    clock.now_s += 1_000
    assert [rate.take() for _ in range(3)] == [0.0] * 3
    assert rate.take() > 0.0, "a long pause fills it to its burst"


def test_a_request_of_many_rows_leaves_a_debt() -> None:
    clock = Clock()
    rate = Rates(clock=clock).rate(b"key", per_s=10.0, burst=10.0)
    assert rate.take() == 0.0
    rate.charge(99)
    assert rate.take() == pytest.approx(9.1)
    clock.now_s += 9.2
    assert rate.take() == 0.0


def test_processes_of_one_server_share_a_bucket(tmp_path: Path) -> None:
    clock = Clock()
    one, other = (Rates(tmp_path / "rates", clock=clock).rate(b"key", per_s=1.0, burst=4.0) for _ in range(2))
    assert [one.take(), other.take(), one.take(), other.take()] == [0.0] * 4
    assert one.take() > 0.0
    assert other.take() > 0.0


def test_a_limit_goes_on_when_the_tokens_are_read_again() -> None:
    rates = Rates(clock=Clock())
    limited = entry("a", predict_rows_per_s=1.0, predict_rows_burst=2.0, manage_per_s=1.0)
    for expected in (0.0, 0.0):
        grant = Grant.of(limited, rates)
        assert grant.predicting is not None
        assert grant.predicting.take() == expected
    grant = Grant.of(limited, rates)
    assert grant.predicting is not None
    assert grant.managing is not None
    assert grant.predicting.take() > 0.0
    assert grant.managing.take() == 0.0, "predictions and the rest are counted apart"


def test_tokens_come_from_the_setting_the_list_and_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(f'[[tokens]]\nname = "filed"\nscopes = ["read"]\nsha256 = "{digest_of(b"filed").hex()}"\n')
    ring = Keyring.read(token="all", entries=[entry("listed")], path=path, rates=Rates())
    assert ring.names == ["filed", "listed", "token"]
    found = ring.find(b"all")
    assert found is not None
    assert found.scopes == frozenset(Scope)
    assert [grant and grant.name for grant in map(ring.find, (b"listed", b"filed", b"", b"ALL"))] == [
        "listed",
        "filed",
        None,
        None,
    ]


def test_a_token_that_is_there_twice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'a' is there twice"):
        Keyring.read(token="a", entries=[entry("a")], path=None, rates=Rates())


def test_a_file_without_tokens_lets_nobody_in_rather_than_everybody_of_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text("")
    assert Keyring.read(token=None, entries=(), path=path, rates=Rates()).is_configured
    assert not Keyring.read(token=None, entries=(), path=None, rates=Rates()).is_configured
