"""The statements about indices that certify/index.c, term.c and lemmas.def rest on, proven by Z3 for all sizes. Numbers
are real unless they must be integers: what holds for reals holds for integers. Without its premises no statement
holds."""
import pytest

z3 = pytest.importorskip("z3", reason="z3-solver is not installed: the index lemmas are not proven here")

a, b, c, e, g, h, i, j, m, n, q, r, s, v, x, y, i2, j2, k = z3.Reals(
    "a b c e g h i j m n q r s v x y i2 j2 k")
E, N = z3.Ints("E N")


def within(value, size):
    """0 <= value < size"""
    return z3.And(value >= 0, value < size)


def whole(value):
    """A number that is an integer other than 0 is at least 1 or at most -1."""
    return z3.Or(value == 0, value >= 1, value <= -1)


# name: (premises, conclusion); k is the difference of two integers, where one is claimed to be the other
STATEMENTS = {
    # ix_div: x = n q + r, so that floor(x / n) = q: another quotient q + k would leave another remainder
    "quotient": ([n >= 1, within(r, n), within(r - n * k, n), whole(k)], k == 0),
    # floor((g a + b) / (g m)) = floor(a / m)
    "common-factor": ([g >= 1, m >= 1, within(b, g), a == m * q + r, r >= 0, r <= m - 1],
                      z3.And(g * a + b == g * m * q + (g * r + b), within(g * r + b, g * m))),
    # sum_of: k = b q + r is in a b where q is in a and r in b, and the other way round
    "sum-split": ([a >= 1, b >= 1, k == b * q + r, within(r, b), within(k, a * b), z3.Or(q >= 0, q <= -1)],
                  within(q, a)),
    "sum-split-back": ([b >= 1, k == b * q + r, within(r, b), q >= 0, q <= a - 1], within(k, a * b)),
    # ix_mod: x - n (x // n) is between 0 and n
    "remainder": ([n >= 1, n * q <= x, x < n * q + n], within(x - n * q, n)),
    # nonneg: a v + b for 0 <= v < n, by the sign of a
    "bound-rising": ([a >= 0, v >= 0, b >= 0], a * v + b >= 0),
    "bound-falling": ([a <= 0, v <= n - 1, b + a * (n - 1) >= 0], a * v + b >= 0),
    # quotient_nonneg: top = n q + r
    "bound-remainder": ([c >= 0, x == n * q + r, r >= 0, e - c * (x - n * q) >= 0], e >= 0),
    "bound-less-remainder": ([c <= 0, x == n * q + r, r <= n - 1, e - c * (x - n * q) + c * (n - 1) >= 0], e >= 0),
    "bound-quotient-falling": ([n >= 1, a <= 0, x == n * q + r, r >= 0], n * (a * q + b) >= n * b + a * x),
    "bound-quotient-rising": ([n >= 1, a >= 0, x == n * q + r, r <= n - 1],
                              n * (a * q + b) >= n * b + a * x - a * (n - 1)),
    "bound-quotient-at-least-0": ([a >= 0, q >= 0, b >= 0], a * q + b >= 0),
    "bound-integer": ([N >= 1, N * E + N - 1 >= 0], E >= 0),
    # view_holds: two indices of the same row-major place are one, axis by axis from the last
    "row-major": ([n >= 1, within(j, n), within(j2, n), i * n + j == i2 * n + j2, whole(i - i2)],
                  z3.And(i == i2, j == j2)),
    "row-major-within": ([n >= 1, m >= 1, i >= 0, i <= m - 1, j >= 0, j <= n - 1], within(i * n + j, m * n)),
    # slices, selections
    "slice": ([a >= 0, s >= 1, i >= 0, i <= m - 1, a + s * (m - 1) < n], within(a + s * i, n)),
    # cat, packed rows: an index lies in the part that begins at a and has n elements
    "part": ([i >= a, i < a + n], within(i - a, n)),
    # attention: head h = G kv + g reads the keys of head kv = h // G, of which there are H / G
    "grouped-heads": ([g >= 1, m >= 1, h == g * q + r, r >= 0, r <= g - 1, h >= 0, h <= g * m - 1, whole(q),
                       whole(q - m)], within(q, m)),
    # repeated heads: element h of reshape(expand(x)) is x's at h // G
    "repeated-heads": ([g >= 1, within(r, g), g * q + r == g * v + s, within(s, g), whole(q - v)], q == v),
    # term_test: the condition that is the other one's opposite
    "opposite": ([z3.Not(E >= 0)], -1 - E >= 0),
    "not-both": ([E >= 0], z3.Not(-1 - E >= 0)),
    # convolution: channel c of group o // (O / G) is within the channels of x, of which a group has C
    "group-channels": ([m >= 1, g >= 1, c >= 0, c <= n - 1, within(q, g), whole(q), whole(g), whole(q - g)],
                       within(n * q + c, n * g)),
    # convolution, pad: a place is outside of x exactly where one of the two conditions fails
    "inside": ([E >= 0, N - 1 - E >= 0], within(E, N)),
    "outside": ([z3.Or(E < 0, E >= N)], z3.Or(-1 - E >= 0, E - N >= 0)),
    # pad of a pad, a slice of a pad: the places between are moved by one number
    "moved": ([within(i - a, n), within(i - a - b, m), a >= 0, b >= 0], i >= a + b),
    # cumsum, lower triangles: k is summed exactly where it is not above i
    "running": ([i - k >= 0, k >= 0, i <= n - 1], within(k, n)),
    # lookups: i + n for i < 0, and i elsewhere, is within n where i is counted from either end
    "from-the-end": ([within(z3.If(i < 0, i + n, i) - x, n), x == 0, i >= 0], within(i, n)),
    # quotient, remainder: rounded towards zero is rounded down where nothing is negative
    "towards-zero": ([n >= 1, x >= 0, x == n * q + r, r >= 0, r <= n - 1, whole(q)], q >= 0),
    # eq of integers: neither difference is negative
    "same": ([x - y >= 0, y - x >= 0], x == y),
    # tril, causal, bounds: j <= i + d is i + d - j >= 0
    "triangle": ([i + a - j >= 0], j <= i + a),
}


def holds(premises, conclusion):
    """unsat: there is no counterexample."""
    solver = z3.Solver()
    solver.set("timeout", 20000)
    solver.add(*premises, z3.Not(conclusion))
    return solver.check()


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement(name):
    premises, conclusion = STATEMENTS[name]
    assert holds(premises, conclusion) == z3.unsat


NEEDED = [(name, at) for name, (premises, _) in STATEMENTS.items() for at in range(len(premises))]


def test_premises_are_needed():
    """A statement that is true without premises would say nothing."""
    for name, (premises, conclusion) in STATEMENTS.items():
        assert holds([], conclusion) == z3.sat, name
    found = sum(holds(premises[:at] + premises[at + 1:], conclusion) == z3.sat
                for name, at in NEEDED for premises, conclusion in [STATEMENTS[name]])
    assert found >= 0.7 * len(NEEDED), (found, len(NEEDED))
