"""Which trials a sweep has."""

from __future__ import annotations

import pytest

from howdah.client.errors import BadInput
from howdah.client.sweep import settings, written


def test_all_combinations_are_tried_the_last_key_changing_fastest() -> None:
    common, trials = settings(["lr=0.1, 0.01", "queue=gpu", "roles.worker.instances=1,2"])
    assert common == ["queue=gpu"]
    assert settings(["env.DATA=file:../data", "lr=1,2"])[0] == ["env.DATA=file:../data"]
    assert trials == [
        {"env.lr": "0.1", "roles.worker.instances": "1"},
        {"env.lr": "0.1", "roles.worker.instances": "2"},
        {"env.lr": "0.01", "roles.worker.instances": "1"},
        {"env.lr": "0.01", "roles.worker.instances": "2"},
    ]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('command="a, b","c"', ['"a, b"', '"c"']),
        ("env.SIZES=[1,2],[3,4]", ["[1,2]", "[3,4]"]),
        ("env.A='x,y',z", ["'x,y'", "z"]),
        ("name=a,b", ["a", "b"]),
        ('env.EMPTY="",x', ['""', "x"]),
    ],
)
def test_commas_within_quotes_and_brackets_belong_to_a_value(text: str, values: list[str]) -> None:
    _, trials = settings([text])
    assert [next(iter(each.values())) for each in trials] == values


def test_lists_side_by_side() -> None:
    _, trials = settings(["lr=0.1,0.01", "batch=32,64"], side_by_side=True)
    assert trials == [{"env.lr": "0.1", "env.batch": "32"}, {"env.lr": "0.01", "env.batch": "64"}]


def test_draws_are_the_same_for_the_same_seed_and_no_place_of_a_grid_comes_twice() -> None:
    given = ["lr=1,2,3,4", "batch=5,6,7"]
    _, some = settings(given, draws=7, seed=3)
    assert settings(given, draws=7, seed=3)[1] == some != settings(given, draws=7, seed=4)[1]
    _, all_of_them = settings(given, draws=100)
    assert len({tuple(each.values()) for each in all_of_them}) == 12
    assert {tuple(each.items()) for each in some} <= {tuple(e.items()) for e in all_of_them}


def test_values_are_drawn_from_ranges() -> None:
    _, trials = settings(["lr=log:1e-4..1e-1", "drop=uniform:0..0.5", "x=a,b"], draws=200)
    rates = [float(each["env.lr"]) for each in trials]
    assert all(1e-4 <= rate <= 1e-1 for rate in rates)
    assert (
        0.3 < sum(rate < 10**-2.5 for rate in rates) / 200 < 0.7
    )  # half of the orders of magnitude
    assert {each["env.x"] for each in trials} == {"a", "b"}


@pytest.mark.parametrize(
    ("given", "options", "problem"),
    [
        (["lr=0.1"], {}, "nothing varies"),
        (["lr"], {}, "'lr' is no setting"),
        (["lr=1,2,1"], {}, "lr has the value '1' twice"),
        (["lr=1,2", "env.lr=3,4"], {}, "lr is given twice"),
        (["lr=0.1,,0.2"], {}, "a value is empty"),
        (['lr="a,b'], {}, "is not closed"),
        (["lr=log:1..2"], {}, "lr is a range: say how many"),
        (["lr=unifrom:0..1"], {"draws": 2}, "'unifrom' is no kind of range"),
        (["lr=log:0..2"], {"draws": 2}, "two numbers above zero"),
        (["lr=uniform:3..1"], {"draws": 2}, "is no range"),
        (["lr=uniform:1..inf"], {"draws": 2}, "is no range"),
        (["lr=1,2", "batch=1,2,3"], {"side_by_side": True}, "lr has 2, batch has 3"),
        (["lr=1,2"], {"side_by_side": True, "draws": 2}, "does not go with --random"),
        ([f"{key}={','.join(map(str, range(40)))}" for key in "ab"], {}, "1,600 combinations"),
    ],
)
def test_what_makes_no_sweep_is_refused_in_words(
    given: list[str], options: dict[str, int], problem: str
) -> None:
    with pytest.raises(BadInput, match=problem):
        settings(given, **options)  # type: ignore[arg-type]


def test_values_of_programs_are_written_as_set_has_them() -> None:
    assert written({"lr": [0.1, 1], "env.A": ["x", "a, b"], "detached": [True, False]}) == [
        "lr=0.1,1",
        'env.A=x,"a, b"',
        "detached=true,false",
    ]
    with pytest.raises(BadInput, match="lr: None"):
        written({"lr": [None]})
