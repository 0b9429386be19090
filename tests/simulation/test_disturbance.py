import numpy as np
import pytest

from engine.core.batch import Work
from engine.simulation.disturbance import ErringPredictor, OperatorNoise
from tests.scheduling.rig import TokenPredictor


@pytest.mark.parametrize("cv", [0.02, 0.05, 0.5])
def test_noise_keeps_the_mean_and_has_the_variation_asked_for(cv: float) -> None:
    times = OperatorNoise(cv, seed=1).disturb(np.full(200_000, 3.0))
    assert times.min() > 0
    assert times.mean() == pytest.approx(3.0, rel=5 * cv / 200_000**0.5)
    assert times.std() / times.mean() == pytest.approx(cv, rel=0.03)


def test_noise_comes_from_the_seed_and_leaves_its_input_alone() -> None:
    seconds = np.arange(1.0, 5.0)
    first, again, other = (OperatorNoise(0.05, seed).disturb(seconds) for seed in (3, 3, 4))
    assert (first == again).all()
    assert (first != other).all()
    assert seconds.tolist() == [1, 2, 3, 4]


def test_each_execution_draws_anew() -> None:
    noise = OperatorNoise(0.05, 0)
    assert (noise.disturb(np.ones(4)) != noise.disturb(np.ones(4))).all()


def test_no_noise_changes_nothing() -> None:
    seconds = np.ones(3)
    assert OperatorNoise(0.0, 0).disturb(seconds) is seconds


def works(count: int) -> list[Work]:
    return [Work(((n, 0), (3, n))) for n in range(1, count + 1)]


def test_predictions_err_by_a_factor_that_belongs_to_the_lengths() -> None:
    erring, again = (ErringPredictor(TokenPredictor(), 0.3, seed=5) for _ in range(2))
    backwards = {work: again.estimate_ns(work) for work in reversed(works(50))}
    for work in works(50):
        assert erring.estimate_ns(work) == backwards[work]
        assert erring.estimate_ns(Work(work.lengths[::-1])) == backwards[work]
    other = ErringPredictor(TokenPredictor(), 0.3, seed=6)
    assert [other.estimate_ns(work) for work in works(50)] != [backwards[work] for work in works(50)]


@pytest.mark.parametrize("cv", [0.1, 0.5])
def test_errors_keep_the_mean_and_have_the_variation_asked_for(cv: float) -> None:
    factors = np.array([ErringPredictor(TokenPredictor(), cv, seed=1).factor(work) for work in works(20_000)])
    assert factors.mean() == pytest.approx(1, abs=4 * cv / 20_000**0.5)
    assert factors.std() == pytest.approx(cv, rel=0.05)


def test_without_error_it_is_the_inner_predictor() -> None:
    inner = TokenPredictor()
    erring = ErringPredictor(inner, 0.0, seed=1)
    assert erring.estimate_ns(works(1)[0]) == inner.estimate_ns(works(1)[0])
    erring.observe(works(1)[0], 77)
    assert inner.observed == [(works(1)[0], 77)]


@pytest.mark.parametrize("error", [-0.1, float("inf"), float("nan")])
def test_an_error_that_cannot_be(error: float) -> None:
    with pytest.raises(ValueError, match="relative error"):
        ErringPredictor(TokenPredictor(), error, 0)
