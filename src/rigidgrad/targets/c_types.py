"""The types that generated C works on: what REAL and its operations are for a double, a float, and
a vector of either.
"""

from __future__ import annotations

from collections.abc import Collection
from string import Template

from rigidgrad.program.program import FUSED

# C's name of the type, and the suffix of public functions
SCALARS = {"float64": ("double", ""), "float32": ("float", "_f32")}

MACROS = (
    "REAL",
    "SCALAR",
    "NAME",
    "TABLE",
    "NUMBER",
    "WIDE",
    "FMA",
    "FMS",
    "FNMA",
    "FNMS",
    "SIN",
    "COS",
    "SQRT",
    "ATAN2",
    "MIN",
    "MAX",
    "SELECT",
    "ENDED",
)

_SCALAR = Template("""\
/* --- one $real --- */
#define REAL $real
#define SCALAR $real
#define NAME(f) f ## __$bits
#define TABLE(f) f ## __$bits
#define NUMBER(x) $number
#define WIDE(x) (($real)(x))
#define FMA(a, b, c) fma$f(a, b, c)
#define FMS(a, b, c) fma$f(a, b, -(c))
#define FNMA(a, b, c) fma$f(-(a), b, c)
#define FNMS(a, b, c) fma$f(-(a), b, -(c))
#define SIN(x) ${own}sin$f(x)
#define COS(x) ${own}cos$f(x)
#define SQRT(x) sqrt$f(x)
#define ATAN2(y, x) atan2$f(y, x)
#define MIN(a, b) ((b) < (a) ? (b) : (a))
#define MAX(a, b) ((a) < (b) ? (b) : (a))
#define SELECT(a, b, x, y) ((a) < (b) ? (x) : (y))
#define ENDED(x) ((x) > 0)
$include
$undefine""")

_LANES = Template("""\
/* --- a vector of ${real}s; functions of libm lane by lane, so that they round as for one state --- */
typedef $real lanes$bits __attribute__((vector_size(LANES)));

$fma

#define EACH$bits(name, parameters, expression) \\
    static inline lanes$bits name##_lanes$bits parameters \\
    { \\
        lanes$bits y; \\
        int k; \\
        for (k = 0; k < LANES$bits; ++k) y[k] = expression; \\
        return y; \\
    }
$each
$own
$moves
/* Whether all lanes are positive. */
static inline __attribute__((unused)) int ended_lanes$bits(lanes$bits x)
{
    int k, all = 1;
    for (k = 0; k < LANES$bits; ++k) all &= x[k] > 0;
    return all;
}

#define REAL lanes$bits
#define SCALAR $real
#define NAME(f) f ## __lanes$bits
#define TABLE(f) f ## __$bits
#define NUMBER(x) ($number - (lanes$bits){0})
#define WIDE(x) (($real)(x) - (lanes$bits){0})
#define FMA(a, b, c) fma_lanes$bits(a, b, c)
#define FMS(a, b, c) fma_lanes$bits(a, b, -(c))
#define FNMA(a, b, c) fma_lanes$bits(-(a), b, c)
#define FNMS(a, b, c) fma_lanes$bits(-(a), b, -(c))
#define SIN(x) sin_lanes$bits(x)
#define COS(x) cos_lanes$bits(x)
#define SQRT(x) sqrt_lanes$bits(x)
#define ATAN2(y, x) atan2_lanes$bits(y, x)
#define MIN(a, b) select_lanes$bits(b, a, b, a)
#define MAX(a, b) select_lanes$bits(a, b, b, a)
#define SELECT(a, b, x, y) select_lanes$bits(a, b, x, y)
#define ENDED(x) ended_lanes$bits(x)
$include
$undefine""")

_MOVES = Template("""\
/* Rows to lanes. Lanes without a row repeat the last one. */
static void gather$bits(const $real *restrict x, long size, long rows, lanes$bits *restrict y)
{
    long i, k;
    for (k = 0; k < LANES$bits; ++k) {
        const $real *row = x + (k < rows ? k : rows - 1) * size;
        for (i = 0; i < size; ++i) y[i][k] = row[i];
    }
}

static void scatter$bits(const lanes$bits *restrict x, long size, long rows, $real *restrict y)
{
    long i, k;
    for (k = 0; k < rows; ++k)
        for (i = 0; i < size; ++i) y[k * size + i] = x[i][k];
}
""")

_FMA = Template("""\
static inline lanes$bits fma_lanes$bits(lanes$bits a, lanes$bits b, lanes$bits c)
{
#if defined(__AVX512F__) && LANES == 64
    return (lanes$bits)_mm512_fmadd_$p(($m512)a, ($m512)b, ($m512)c);
#elif defined(__FMA__) && LANES == 32
    return (lanes$bits)_mm256_fmadd_$p(($m256)a, ($m256)b, ($m256)c);
#elif defined(__FMA__) && LANES == 16
    return (lanes$bits)_mm_fmadd_$p(($m128)a, ($m128)b, ($m128)c);
#elif defined(__aarch64__) && LANES == 16
    return (lanes$bits)vfmaq_f$bits(($neon)c, ($neon)a, ($neon)b);
#else
    lanes$bits y;
    int k;
    for (k = 0; k < LANES$bits; ++k) y[k] = fma$f(a[k], b[k], c[k]);
    return y;
#endif
}""")

# what libm or a comparison does lane by lane, by the kinds of nodes that need it
_EACH = {
    "sin": (("sin",), "(lanes$bits a)", "sin$f(a[k])"),
    "cos": (("cos",), "(lanes$bits a)", "cos$f(a[k])"),
    "sqrt": (("sqrt",), "(lanes$bits a)", "sqrt$f(a[k])"),
    "atan2": (("atan2",), "(lanes$bits a, lanes$bits b)", "atan2$f(a[k], b[k])"),
    "select": (
        ("min", "max", "select"),
        "(lanes$bits a, lanes$bits b, lanes$bits c, lanes$bits d)",
        "a[k] < b[k] ? c[k] : d[k]",
    ),
}

_VECTORS = Template("""\
/* Bytes in a vector: what was asked for, or what the compiler's flags allow; 0 without vectors or without a fused multiply-add of them. */
#if !defined(__GNUC__)
#define LANES 0
#elif defined(${prefix}_VECTOR_BYTES)
#define LANES ${prefix}_VECTOR_BYTES
#elif defined(__AVX512F__)
#define LANES 64
#elif defined(__FMA__)
#define LANES 32
#elif defined(__aarch64__)
#define LANES 16
#else
#define LANES 0
#endif

#if LANES && defined(__FMA__)
#include <immintrin.h>
#elif LANES && defined(__aarch64__)
#include <arm_neon.h>
#endif

#define LANES64 (LANES / 8)
#define LANES32 (LANES / 4)

int ${name}_lanes(void) { return LANES ? LANES64 : 1; }
int ${name}_lanes_f32(void) { return LANES ? LANES32 : 1; }""")

_INTEL = {"float64": ("pd", "d", "float64x2_t"), "float32": ("ps", "", "float32x4_t")}


def vectors(prefix: str) -> str:
    """The width of vectors, for the whole source."""
    return _VECTORS.substitute(name=prefix, prefix=prefix.upper())


def scalar(dtype: str, include: str, own: str = "") -> str:
    """The functions over one number of this type. Sines and cosines are those of libm, or those
    whose names begin with `own`.
    """
    return _SCALAR.substitute(_words(dtype, include) | {"own": own})


def lanes(
    dtype: str, include: str, kinds: Collection[str], *, rows: bool = True, own: str = ""
) -> str:
    """The functions over a vector of this type, for programs with nodes of these kinds; with
    `rows`, what moves rows of arrays into lanes and back. With `own`, a text of C, sines and
    cosines are there, as sin_lanes64 and cos_lanes64.
    """
    p, letter, neon = _INTEL[dtype]
    words = _words(dtype, include)
    words |= {
        "p": p,
        "m512": f"__m512{letter}",
        "m256": f"__m256{letter}",
        "m128": f"__m128{letter}",
        "neon": neon,
    }
    used = [
        (name, *texts)
        for name, (needed_by, *texts) in _EACH.items()
        if any(kind in kinds for kind in needed_by) and not (own and name in ("sin", "cos"))
    ]
    words["each"] = "\n".join(
        Template(f"EACH$bits({name}, {parameters}, {value})").substitute(words)
        for name, parameters, value in used
    )
    words["moves"] = _MOVES.substitute(words) if rows else ""
    words["own"] = own
    words["fma"] = _FMA.substitute(words) if any(kind in kinds for kind in FUSED) else ""
    return _LANES.substitute(words)


def _words(dtype: str, include: str) -> dict[str, str]:
    double = dtype == "float64"
    return {
        "real": SCALARS[dtype][0],
        "bits": dtype.removeprefix("float"),
        "f": "" if double else "f",
        "number": "x" if double else "x ## f",
        "include": include,
        "undefine": "\n".join(f"#undef {macro}" for macro in MACROS),
    }
