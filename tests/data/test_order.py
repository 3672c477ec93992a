from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gem_core._util.order import Order


@given(size=st.integers(1, 600), seed=st.integers(0, 2**32))
def test_every_item_occurs_once(size, seed):
    order = Order(size, seed)
    assert sorted(order[place] for place in range(size)) == list(range(size))


def test_seeds_give_orders_of_their_own():
    orders = {tuple(Order(50, seed)[place] for place in range(50)) for seed in range(200)}
    assert len(orders) == 200
    assert tuple(range(50)) not in orders


def test_the_first_item_is_spread_evenly():
    counts = [0] * 10
    for seed in range(5000):
        counts[Order(10, seed)[0]] += 1
    assert max(counts) < 600
    assert min(counts) > 400
