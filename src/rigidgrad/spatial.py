"""Spatial algebra over any scalar, in compact form.

Featherstone's conventions: a motion is [angular; linear], a transform `X` takes motions from a
parent's frame into a child's frame and is held as `(E, r)`: E rotates parent coordinates into child
coordinates, r is the child's origin in parent coordinates. A rigid body's inertia is `(m, h, I)`:
mass, first moment m·c, rotational inertia about the frame's origin as (xx, xy, yy, xz, yz, zz).

Vectors and matrices are tuples of scalars. Structural zeros are skipped (`rigidgrad.scalars`), so
the costs in the docstrings are those of dense operands, in multiplications and additions
(Featherstone, Rigid Body Dynamics Algorithms, 2008, tables 2.5 and A).
"""

from __future__ import annotations

from typing import NamedTuple

from rigidgrad.scalars import Scalar, add, is_constant, mul, neg, sub

Vector3 = tuple[Scalar, ...]  # three
Matrix3 = tuple[Vector3, ...]  # three rows
Symmetric3 = tuple[Scalar, ...]  # xx, xy, yy, xz, yz, zz

ZERO3: Vector3 = (0.0, 0.0, 0.0)
IDENTITY3: Matrix3 = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


# --- three dimensions -----------------------------------------------------------------------------


def add3(a: Vector3, b: Vector3) -> Vector3:
    return add(a[0], b[0]), add(a[1], b[1]), add(a[2], b[2])


def sub3(a: Vector3, b: Vector3) -> Vector3:
    return sub(a[0], b[0]), sub(a[1], b[1]), sub(a[2], b[2])


def scale3(s: Scalar, a: Vector3) -> Vector3:
    return mul(s, a[0]), mul(s, a[1]), mul(s, a[2])


def dot3(a: Vector3, b: Vector3) -> Scalar:
    return add(add(mul(a[0], b[0]), mul(a[1], b[1])), mul(a[2], b[2]))


def cross3(a: Vector3, b: Vector3) -> Vector3:
    """a × b: 6 multiplications, 3 additions."""
    return (
        sub(mul(a[1], b[2]), mul(a[2], b[1])),
        sub(mul(a[2], b[0]), mul(a[0], b[2])),
        sub(mul(a[0], b[1]), mul(a[1], b[0])),
    )


def transpose(m: Matrix3) -> Matrix3:
    return tuple(zip(*m, strict=True))


def rotate(e: Matrix3, a: Vector3) -> Vector3:
    """E a."""
    return dot3(e[0], a), dot3(e[1], a), dot3(e[2], a)


def rotate_back(e: Matrix3, a: Vector3) -> Vector3:
    """Eᵀ a."""
    return rotate(transpose(e), a)


def multiply3(a: Matrix3, b: Matrix3) -> Matrix3:
    """A B, for any 3x3 matrices."""
    columns = transpose(b)
    return tuple(tuple(dot3(row, column) for column in columns) for row in a)


def multiply_rotations(a: Matrix3, b: Matrix3) -> Matrix3:
    """A B for rotations. Where all is dense, the last row is the cross product of the others: 24
    multiplications instead of 27.
    """
    if any(
        is_constant(x, 0.0) or is_constant(x, 1.0) or is_constant(x, -1.0)
        for row in (a[2], *b)
        for x in row
    ):
        return multiply3(a, b)
    columns = transpose(b)
    x: Vector3 = tuple(dot3(a[0], c) for c in columns)
    y: Vector3 = tuple(dot3(a[1], c) for c in columns)
    return x, y, cross3(x, y)


def symmetric_matrix(s: Symmetric3) -> Matrix3:
    xx, xy, yy, xz, yz, zz = s
    return (xx, xy, xz), (xy, yy, yz), (xz, yz, zz)


def symmetric_times(s: Symmetric3, a: Vector3) -> Vector3:
    return rotate(symmetric_matrix(s), a)


def planar_part(r: Matrix3) -> tuple[int, int] | None:
    """(row, column) of a structural ±1 that is alone in both: R then only turns the other two
    coordinates, up to their order and sign.
    """
    for i in range(3):
        for j in range(3):
            if (is_constant(r[i][j], 1.0) or is_constant(r[i][j], -1.0)) and all(
                is_constant(r[i][k], 0.0) for k in range(3) if k != j
            ):
                return i, j
    return None


def rotate_symmetric(r: Matrix3, s: Symmetric3) -> Symmetric3:
    """R S Rᵀ: 28 multiplications, 29 additions; 13 and 12 where R turns about a coordinate axis."""
    if (planar := planar_part(r)) is not None:
        k = rotate_planar(r, symmetric_matrix(s), planar)
        return k[0][0], k[0][1], k[1][1], k[0][2], k[1][2], k[2][2]
    # With S = s_zz·1 + T, T_zz = 0, the matrix L = [a b 0; b d 0; 2x 2y 0] is T plus the skew
    # matrix of (y, -x, 0); its last column vanishes, the trace gives one diagonal entry, and the
    # skew part is rotated as a vector.
    xx, xy, yy, xz, yz, zz = s
    a, d = sub(xx, zz), sub(yy, zz)
    left: Vector3 = (a, xy, add(xz, xz))
    right: Vector3 = (xy, d, add(yz, yz))
    y1 = dot3(r[1], left), dot3(r[1], right)
    y2 = dot3(r[2], left), dot3(r[2], right)

    def product(y: tuple[Scalar, Scalar], row: Vector3) -> Scalar:
        return add(mul(y[0], row[0]), mul(y[1], row[1]))

    w = tuple(sub(mul(row[0], yz), mul(row[1], xz)) for row in r)
    q11, q22 = product(y1, r[1]), product(y2, r[2])
    q00 = sub(sub(add(a, d), q11), q22)
    return (
        add(q00, zz),
        sub(product(y1, r[0]), w[2]),
        add(q11, zz),
        add(product(y2, r[0]), w[1]),
        sub(product(y2, r[1]), w[0]),
        add(q22, zz),
    )


def rotate_matrix(r: Matrix3, k: Matrix3) -> Matrix3:
    """R K Rᵀ for any 3x3 matrix."""
    if (planar := planar_part(r)) is not None:
        return rotate_planar(r, k, planar)
    return multiply3(multiply3(r, k), transpose(r))


def rotate_planar(r: Matrix3, k: Matrix3, planar: tuple[int, int]) -> Matrix3:
    """R K Rᵀ where R turns two coordinates only; K is taken as symmetric if its entries are the
    same objects. The symmetric part of their block turns by the double angle, its skew part and its
    trace stay.
    """
    i, j = planar
    sign = r[i][j]
    i1, i2 = (x for x in range(3) if x != i)
    j1, j2 = (x for x in range(3) if x != j)
    p, q, u, v = r[i1][j1], r[i1][j2], r[i2][j1], r[i2][j2]
    a, d = k[j1][j1], k[j2][j2]
    upper, lower = k[j1][j2], k[j2][j1]
    symmetric = all(_same(k[x][y], k[y][x]) for x, y in ((j1, j2), (j, j1), (j, j2)))
    twice = add(upper, lower)  # 2b
    e = sub(a, d)
    qq, pq = mul(q, q), mul(p, q)
    t = sub(mul(qq, e), mul(pq, twice))
    # p u = -q v, so the off-diagonal entry is p u (a - d) + (p v + q u) b
    mixed, turned = mul(p, u), add(mul(p, v), mul(q, u))
    half = upper if symmetric else mul(0.5, twice)
    off = add(mul(mixed, e), mul(turned, half))
    skew_part = 0.0 if symmetric else mul(0.5, sub(upper, lower))
    # the skew part changes sign with the orientation of the pair, which is structural: det = p v -
    # q u = ±1
    flipped = not symmetric and _reflects(r, planar)
    result: list[list[Scalar]] = [[0.0] * 3 for _ in range(3)]
    result[i][i] = k[j][j]
    result[i1][i1], result[i2][i2] = sub(a, t), add(d, t)
    result[i1][i2] = sub(off, skew_part) if flipped else add(off, skew_part)
    result[i2][i1] = off if symmetric else (add(off, skew_part) if flipped else sub(off, skew_part))
    column = mul(sign, k[j1][j]), mul(sign, k[j2][j])
    result[i1][i] = result[i][i1] = add(mul(p, column[0]), mul(q, column[1]))
    result[i2][i] = result[i][i2] = add(mul(u, column[0]), mul(v, column[1]))
    if not symmetric:
        row = mul(sign, k[j][j1]), mul(sign, k[j][j2])
        result[i][i1] = add(mul(p, row[0]), mul(q, row[1]))
        result[i][i2] = add(mul(u, row[0]), mul(v, row[1]))
    return tuple(tuple(x) for x in result)


def _same(x: Scalar, y: Scalar) -> bool:
    return x is y or (type(x) is float and type(y) is float and x == y)


def _reflects(r: Matrix3, planar: tuple[int, int]) -> bool:
    """Whether the 2x2 block of a rotation has determinant -1: the sign of its lone entry and the
    parity of its place decide.
    """
    i, j = planar
    return bool((r[i][j] < 0) != ((i + j) % 2 == 1))


# --- six dimensions -------------------------------------------------------------------------------


class _Pair(NamedTuple):
    angular: Vector3
    linear: Vector3


class Motion(_Pair):
    """A velocity, an acceleration or a joint axis."""

    __slots__ = ()

    def __add__(self, other: Motion) -> Motion:  # type: ignore[override]
        return Motion(add3(self.angular, other.angular), add3(self.linear, other.linear))

    def __sub__(self, other: Motion) -> Motion:
        return Motion(sub3(self.angular, other.angular), sub3(self.linear, other.linear))

    def scale(self, s: Scalar) -> Motion:
        return Motion(scale3(s, self.angular), scale3(s, self.linear))

    def cross(self, m: Motion) -> Motion:
        """self × m: 18 multiplications, 12 additions."""
        w, v = self
        return Motion(cross3(w, m.angular), add3(cross3(w, m.linear), cross3(v, m.angular)))

    def cross_force(self, f: Force) -> Force:
        """self ×* f: 18 multiplications, 12 additions."""
        w, v = self
        return Force(add3(cross3(w, f.angular), cross3(v, f.linear)), cross3(w, f.linear))


class Force(_Pair):
    """A wrench or a momentum: [moment about the origin; force]."""

    __slots__ = ()

    def __add__(self, other: Force) -> Force:  # type: ignore[override]
        return Force(add3(self.angular, other.angular), add3(self.linear, other.linear))

    def __sub__(self, other: Force) -> Force:
        return Force(sub3(self.angular, other.angular), sub3(self.linear, other.linear))

    def scale(self, s: Scalar) -> Force:
        return Force(scale3(s, self.angular), scale3(s, self.linear))

    def dot(self, m: Motion) -> Scalar:
        return add(dot3(self.angular, m.angular), dot3(self.linear, m.linear))


ZERO_MOTION = Motion(ZERO3, ZERO3)
ZERO_FORCE = Force(ZERO3, ZERO3)


class Transform(NamedTuple):
    """The coordinate transform X = ᵢX_λ from a parent's frame to a child's."""

    E: Matrix3
    r: Vector3

    def motion(self, m: Motion) -> Motion:
        """X m, parent to child: 24 multiplications, 18 additions."""
        w, v = m
        return Motion(rotate(self.E, w), rotate(self.E, sub3(v, cross3(self.r, w))))

    def motion_back(self, m: Motion) -> Motion:
        """X⁻¹ m, child to parent."""
        w = rotate_back(self.E, m.angular)
        return Motion(w, add3(rotate_back(self.E, m.linear), cross3(self.r, w)))

    def force_back(self, f: Force) -> Force:
        """Xᵀ f, child to parent: 24 multiplications, 18 additions."""
        linear = rotate_back(self.E, f.linear)
        return Force(add3(rotate_back(self.E, f.angular), cross3(self.r, linear)), linear)

    def force(self, f: Force) -> Force:
        """X* f, parent to child."""
        n, linear = f
        return Force(rotate(self.E, sub3(n, cross3(self.r, linear))), rotate(self.E, linear))

    def point_back(self, p: Vector3) -> Vector3:
        """A point given in child coordinates, in parent coordinates."""
        return add3(self.r, rotate_back(self.E, p))

    def inertia_back(self, inertia: Inertia) -> Inertia:
        """Xᵀ I X, child to parent: 52 multiplications, 56 additions."""
        m, h, rotational = inertia
        h = rotate_back(self.E, h)
        h2 = add3(h, scale3(m, self.r))
        turned = rotate_symmetric(transpose(self.E), rotational)
        # parallel axes: I - r× h× - (h + m r)× r×, both terms being symmetric together
        a, b = outer_inertia(self.r, h), outer_inertia(h2, self.r)
        return Inertia(
            m, h2, tuple(add(add(t, x), y) for t, x, y in zip(turned, a, b, strict=True))
        )

    def articulated_back(self, inertia: ArticulatedInertia) -> ArticulatedInertia:
        """Xᵀ Iᴬ X, child to parent."""
        top, off, bottom = inertia
        back = transpose(self.E)
        c = rotate_symmetric(back, bottom)
        b = rotate_matrix(back, off)
        a = rotate_symmetric(back, top)
        rx = skew(self.r)
        rc = multiply3(rx, symmetric_matrix(c))
        b2: Matrix3 = tuple(add3(x, y) for x, y in zip(b, rc, strict=True))
        first, second = multiply3(rx, transpose(b)), multiply3(rx, transpose(b2))
        a2 = tuple(
            add(add(x, first[j][i]), second[i][j]) for x, (i, j) in zip(a, _LOWER, strict=True)
        )
        return ArticulatedInertia(a2, b2, c)

    def __matmul__(self, other: Transform) -> Transform:
        """self after other: 33 multiplications, 24 additions."""
        return Transform(
            multiply_rotations(self.E, other.E), add3(other.r, rotate_back(other.E, self.r))
        )

    def inverse(self) -> Transform:
        x, y, z = rotate(self.E, self.r)
        return Transform(transpose(self.E), (neg(x), neg(y), neg(z)))


IDENTITY = Transform(IDENTITY3, ZERO3)

# (row, column) of the six entries of a symmetric matrix, in the order of Inertia.I
_LOWER = ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))


def skew(a: Vector3) -> Matrix3:
    """The matrix of a ×."""
    x, y, z = a
    return (0.0, neg(z), y), (z, 0.0, neg(x)), (neg(y), x, 0.0)


def outer_inertia(a: Vector3, b: Vector3) -> Symmetric3:
    """The lower triangle of -a× b× = (a·b)·1 - b aᵀ."""
    xx, yy, zz = mul(a[0], b[0]), mul(a[1], b[1]), mul(a[2], b[2])
    return (
        add(yy, zz),
        neg(mul(b[0], a[1])),
        add(xx, zz),
        neg(mul(b[0], a[2])),
        neg(mul(b[1], a[2])),
        add(xx, yy),
    )


class Inertia(NamedTuple):
    """Spatial inertia of a rigid body about its frame's origin."""

    m: Scalar
    h: Vector3
    I: Symmetric3

    def __add__(self, other: Inertia) -> Inertia:  # type: ignore[override]
        rotational = tuple(add(x, y) for x, y in zip(self.I, other.I, strict=True))
        return Inertia(add(self.m, other.m), add3(self.h, other.h), rotational)

    def times(self, a: Motion) -> Force:
        """I a: 24 multiplications, 18 additions."""
        w, v = a
        return Force(
            add3(symmetric_times(self.I, w), cross3(self.h, v)),
            sub3(scale3(self.m, v), cross3(self.h, w)),
        )

    def rate(self, u: Motion) -> Inertia:
        """u ×* I - I u×: how the inertia of a body changes that moves by u. Its mass does not."""
        w, v = u
        turned = tuple(cross3(w, row) for row in symmetric_matrix(self.I))
        a, b = outer_inertia(self.h, v), outer_inertia(v, self.h)
        rotational = tuple(
            add(add(turned[i][j], turned[j][i]), add(x, y))
            for x, y, (i, j) in zip(a, b, _LOWER, strict=True)
        )
        return Inertia(0.0, add3(cross3(w, self.h), scale3(self.m, v)), rotational)

    def articulated(self) -> ArticulatedInertia:
        m = self.m
        return ArticulatedInertia(self.I, skew(self.h), (m, 0.0, m, 0.0, 0.0, m))


class ArticulatedInertia(NamedTuple):
    """A symmetric 6x6 inertia in blocks [[A, B], [Bᵀ, C]]."""

    A: Symmetric3
    B: Matrix3
    C: Symmetric3

    def __add__(self, other: ArticulatedInertia) -> ArticulatedInertia:  # type: ignore[override]
        return ArticulatedInertia(
            tuple(add(x, y) for x, y in zip(self.A, other.A, strict=True)),
            tuple(add3(x, y) for x, y in zip(self.B, other.B, strict=True)),
            tuple(add(x, y) for x, y in zip(self.C, other.C, strict=True)),
        )

    def times(self, a: Motion) -> Force:
        """Iᴬ a: 36 multiplications, 30 additions."""
        w, v = a
        return Force(
            add3(symmetric_times(self.A, w), rotate(self.B, v)),
            add3(rotate_back(self.B, w), symmetric_times(self.C, v)),
        )

    def minus_outer(self, u: Force, w: Force) -> ArticulatedInertia:
        """Iᴬ - u wᵀ, where the product is known to be symmetric in sum over all pairs
        subtracted.
        """
        return ArticulatedInertia(
            tuple(
                sub(x, mul(u.angular[i], w.angular[j]))
                for x, (i, j) in zip(self.A, _LOWER, strict=True)
            ),
            tuple(
                tuple(sub(self.B[i][j], mul(u.angular[i], w.linear[j])) for j in range(3))
                for i in range(3)
            ),
            tuple(
                sub(x, mul(u.linear[i], w.linear[j]))
                for x, (i, j) in zip(self.C, _LOWER, strict=True)
            ),
        )


def is_zero3(a: Vector3) -> bool:
    """Whether all components are structurally zero."""
    return all(is_constant(x, 0.0) for x in a)
