"""The numbers of a backward pass in memory, as `llvm_riccati` reads and writes them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Sizes, and the columns of a row [state | control, gradient]; each group is whole vectors.
    With `form` "dense" or "floating" the state is one group, else two (q, v); "floating" has a free
    `base` of some freedoms, the first ones.
    """

    n: int
    m: int
    form: str  # "dense", "floating", "explicit" or "implicit"
    dtype: str
    width: int
    diagonal: bool = False  # L is a row, the diagonal
    bounded: bool = False
    gaps: bool = False
    base: int = 0

    def whole(self, count: int) -> int:
        return -(-count // self.width) * self.width

    @property
    def half(self) -> int:
        """Numbers of a part of the state."""
        return self.n if self.form == "dense" else self.n // 2

    @property
    def rows(self) -> int:
        """Rows of F or G."""
        return self.half

    @property
    def state_columns(self) -> int:
        return self.whole(self.n) if self.joined else 2 * self.whole(self.half)

    @property
    def joined(self) -> bool:
        """Whether q and v are neighbours."""
        return self.form in ("dense", "floating")

    @property
    def base_columns(self) -> int:
        return self.whole(self.base)

    @property
    def move_size(self) -> int:
        """Numbers by which positions move: of the base, rows of ∂q'/∂q and of ∂q'/∂v'; and the time
        step, in a vector of its own.
        """
        return 2 * self.base * self.base_columns + self.width

    @property
    def columns(self) -> int:
        return self.state_columns + self.whole(self.m + 1)

    def state(self, i: int) -> int:
        return i if self.joined or i < self.half else self.whole(self.half) + i - self.half

    def control(self, i: int) -> int:
        return self.state_columns + i

    @property
    def gradient(self) -> int:
        """The column of H's rows that takes g."""
        return self.state_columns + self.m

    @property
    def gain_columns(self) -> int:
        """Of a row of the gains: those of H."""
        return self.columns

    @property
    def correction(self) -> int:
        """The column of the gains that holds κ."""
        return self.gradient

    @property
    def value_size(self) -> int:
        """Numbers of a cost-to-go: rows of V, then v."""
        return (self.n + 1) * self.state_columns

    @property
    def scratch_size(self) -> int:
        c, s = self.columns, self.state_columns
        middle = (
            self.n * c
            if self.form == "dense"
            else 2 * self.half * c + 2 * self.half * s + self.width
        )
        return (
            2 * self.value_size + (self.n + 1) * c + 4 * (self.m + 1) * c + middle + 8 * self.width
        )
