/* --- constraints by an augmented Lagrangian whose penalties have rounded corners ----------------- */

static double *number_of(const pfx_solver *s, int k, const int *places, int i)
{
    return row_of(s, k) + places[i];
}

static double lower_at(const pfx_solver *s, int k, int i)
{
    return k == STEPS && controlled[i] ? -FAR_BOUND : *number_of(s, k, lower_places, i);
}

static double upper_at(const pfx_solver *s, int k, int i)
{
    return k == STEPS && controlled[i] ? FAR_BOUND : *number_of(s, k, upper_places, i);
}

static void set_all(pfx_solver *s, const int *places, double value)
{
    int k, i;
    for (k = 0; k <= STEPS; ++k)
        for (i = 0; i < CONSTRAINTS; ++i) *number_of(s, k, places, i) = value;
}

/* The values of all constraints; the last knot is given the control of the one before. */
static void measure(pfx_solver *s, double (*x)[NX], double (*u)[NU])
{
    int k;
    for (k = 0; k <= STEPS; ++k)
        constraint_values_of(x[k], u[k < STEPS ? k : STEPS - 1], row_of(s, k), s->outer.c[k]);
}

/* How far a value is beyond its bounds, signed; 0 within. */
static double beyond(double c, double lower, double upper)
{
    const double least = c < lower ? lower : c;
    return c - (least > upper ? upper : least);
}

OWN double violation_of(pfx_solver *s, double (*x)[NX], double (*u)[NU])
{
    double found = 0.0;
    int k, i;
    measure(s, x, u);
    for (k = 0; k <= STEPS; ++k)
        for (i = 0; i < CONSTRAINTS; ++i) {
            const double size =
                fabs(beyond(s->outer.c[k][i], lower_at(s, k, i), upper_at(s, k, i)));
            if (!(size <= found)) found = size;
        }
    return found;
}

static void forget_multipliers(pfx_solver *s)
{
    int i;
    if (!s->own.learnt) {
        set_all(s, multiplier_places, 0.0);
        set_all(s, penalty_places, FIRST_PENALTY);
    }
    set_all(s, softness_places, SHARP);
    for (i = 0; i < CONSTRAINTS; ++i) s->outer.corner[i] = 1.0;
}

/* --- how strong penalties must be --- */

/* c (rows, columns) = a b, added to c if asked for; a and b with the distances of their rows and of
 * their columns. Sums are local: gcc 12 at -O2 stores those in memory as if they were aligned. */
APART void product(
    double *c, int added, const double *a, int a_row, int a_column, const double *b, int b_row,
    int b_column, int rows, int inner, int columns)
{
    int i, j, k;
    for (i = 0; i < rows; ++i)
        for (j = 0; j < columns; ++j) {
            double sum = added ? c[i * columns + j] : 0.0;
            for (k = 0; k < inner; ++k)
                sum += a[i * a_row + k * a_column] * b[k * b_row + j * b_column];
            c[i * columns + j] = sum;
        }
}

/* The inverse of a symmetric matrix whose eigenvalues are made positive, by Jacobi's rotations. */
static void invert(double Q[NU][NU], double inverse[NU][NU])
{
    double vectors[NU][NU], most = 0.0;
    int i, j, k, sweep;
    for (i = 0; i < NU; ++i)
        for (j = 0; j < NU; ++j) vectors[i][j] = i == j ? 1.0 : 0.0;
    for (sweep = 0; sweep < 60; ++sweep) {
        double off = 0.0, diagonal = 0.0;
        for (i = 0; i < NU; ++i) {
            diagonal += Q[i][i] * Q[i][i];
            for (j = 0; j < i; ++j) off += Q[i][j] * Q[i][j];
        }
        if (!(off > 1e-32 * diagonal)) break;
        for (i = 0; i < NU; ++i)
            for (j = i + 1; j < NU; ++j) {
                const double apart = Q[j][j] - Q[i][i];
                double t, c, r;
                if (Q[i][j] == 0.0) continue;
                t = 2.0 * Q[i][j] / (fabs(apart) + sqrt(apart * apart + 4.0 * Q[i][j] * Q[i][j]));
                if (apart < 0.0) t = -t;
                c = 1.0 / sqrt(t * t + 1.0);
                r = t * c;
                for (k = 0; k < NU; ++k) {
                    const double a = Q[k][i], b = Q[k][j];
                    Q[k][i] = c * a - r * b;
                    Q[k][j] = r * a + c * b;
                }
                for (k = 0; k < NU; ++k) {
                    const double a = Q[i][k], b = Q[j][k], v = vectors[k][i], w = vectors[k][j];
                    Q[i][k] = c * a - r * b;
                    Q[j][k] = r * a + c * b;
                    vectors[k][i] = c * v - r * w;
                    vectors[k][j] = r * v + c * w;
                }
            }
    }
    for (i = 0; i < NU; ++i)
        if (fabs(Q[i][i]) > most) most = fabs(Q[i][i]);
    if (most < 2.2250738585072014e-308) most = 2.2250738585072014e-308;
    for (i = 0; i < NU; ++i)
        for (j = 0; j < NU; ++j) {
            double sum = 0.0;
            for (k = 0; k < NU; ++k)
                sum += vectors[i][k] * vectors[j][k]
                       / (Q[k][k] > 1e-12 * most ? Q[k][k] : 1e-12 * most);
            inverse[i][j] = sum;
        }
}

/* [A, B] of the step from a knot, from what the backward pass reads. */
static void whole_dynamics(const pfx_solver *s, int k, double A[NDX][NDX], double B[NDX][NU])
{
    int i, j;
#if FORM_DENSE
    for (i = 0; i < NDX; ++i) {
        for (j = 0; j < NDX; ++j) A[i][j] = s->F[k][i * COLUMNS + state_columns[j]];
        for (j = 0; j < NU; ++j) B[i][j] = s->F[k][i * COLUMNS + STATE_COLUMNS + j];
    }
#else
    enum { HALF = NDX / 2 };
    const double h = s->own.h[k];
    int l;
    for (i = 0; i < HALF; ++i) { /* velocities first: positions move with them */
        for (j = 0; j < NDX; ++j) A[HALF + i][j] = s->F[k][i * COLUMNS + state_columns[j]];
        for (j = 0; j < NU; ++j) B[HALF + i][j] = s->F[k][i * COLUMNS + STATE_COLUMNS + j];
    }
    for (i = 0; i < HALF; ++i) {
        for (j = 0; j < NDX; ++j) A[i][j] = i == j ? 1.0 : 0.0;
        for (j = 0; j < NU; ++j) B[i][j] = 0.0;
#if FORM_EXPLICIT
        A[i][HALF + i] = h;
        (void)l;
#else
#if BASE
        if (i < BASE)
            for (j = 0; j < BASE; ++j) A[i][j] = s->move[k][i * BASE_COLUMNS + j];
#endif
        for (l = 0; l < HALF; ++l) {
            double by = i == l ? h : 0.0;
#if BASE
            if (i < BASE && l < BASE) by = s->move[k][(BASE + i) * BASE_COLUMNS + l];
#endif
            if (by == 0.0) continue;
            for (j = 0; j < NDX; ++j) A[i][j] += by * A[HALF + l][j];
            for (j = 0; j < NU; ++j) B[i][j] += by * B[HALF + l][j];
        }
#endif
    }
#endif
}

/* Several steps of the same dynamics with the control held. */
static void repeat_steps(pfx_solver *s, int r, int count)
{
    outer_loop *const o = &s->outer;
    int step, i, j;
    if (count == 1) return;
    for (i = 0; i < NDX; ++i)
        for (j = 0; j < NDX; ++j) {
            o->V[i][j] = i == j ? 1.0 : 0.0; /* the power of A */
            o->P[i][j] = 0.0;                /* the sum of powers */
        }
    for (step = 0; step < count; ++step) {
        for (i = 0; i < NDX; ++i)
            for (j = 0; j < NDX; ++j) o->P[i][j] += o->V[i][j];
        product(o->W[0], 0, o->V[0], NDX, 1, o->A[r][0], NDX, 1, NDX, NDX, NDX);
        memcpy(o->V, o->W, sizeof o->V);
    }
    product(o->Q[0], 0, o->P[0], NDX, 1, o->B[r][0], NU, 1, NDX, NDX, NU);
    memcpy(o->B[r], o->Q, sizeof o->Q);
    memcpy(o->A[r], o->V, sizeof o->V);
}

/* The least curvature of the cost that counts for each control. */
static void measure_flattest(pfx_solver *s, double cost)
{
    const double most = largest(s->u[0], STEPS * (long)NU);
    int i;
    for (i = 0; i < NU; ++i) {
        double size = 0.0;
#if BOUNDED
        int k;
        for (k = 0; k < STEPS; ++k) {
            const double low = s->own.lower[k][i], high = s->own.upper[k][i];
            if (isfinite(low) && isfinite(high) && 0.5 * (high - low) > size)
                size = 0.5 * (high - low);
        }
#endif
        if (!(size > 0.0)) size = most;
        s->outer.flattest[i] = size > 0.0 ? FLATTEST * fabs(cost) / (STEPS * (size * size)) : 0.0;
    }
}

/* Expands the costs alone, at the first knot of each stride. */
static void expand_strides(pfx_solver *s)
{
    static const int *const places[5] = {
        lower_places, upper_places, multiplier_places, penalty_places, softness_places};
    static const double neutral[5] = {-FAR_BOUND, FAR_BOUND, 0.0, 1.0, SHARP};
    outer_loop *const o = &s->outer;
    double kept[5][CONSTRAINTS];
    int r, n, i, j;
    for (r = 0; r <= STRIDES; ++r) {
        const int k = stride_knots[r];
        constraint_jacobians_of(
            s->x[k], s->u[k < STEPS ? k : STEPS - 1], row_of(s, k), o->gx[r][0], o->gu[r][0]);
        for (n = 0; n < 5; ++n)
            for (i = 0; i < CONSTRAINTS; ++i) {
                kept[n][i] = *number_of(s, k, places[n], i);
                *number_of(s, k, places[n], i) = neutral[n];
            }
        if (k < STEPS) {
            const int count = stride_knots[r + 1] - k;
            expand_knots(s, k, 1);
            whole_dynamics(s, k, o->A[r], o->B[r]);
            repeat_steps(s, r, count);
            for (i = 0; i < NDX + NU; ++i)
                for (j = 0; j < NDX + NU; ++j) {
                    const int column = j < NDX ? state_columns[j] : STATE_COLUMNS + j - NDX;
#if DIAGONAL
                    o->H[r][i][j] = i == j ? s->L[k][column] * count : 0.0;
#else
                    o->H[r][i][j] = s->L[k][i * COLUMNS + column] * count;
#endif
                }
        } else
            final_expansion__64(s->x[k], row_of(s, k), s->end);
        for (n = 0; n < 5; ++n)
            for (i = 0; i < CONSTRAINTS; ++i) *number_of(s, k, places[n], i) = kept[n][i];
    }
}

/* The gains of the strides' LQ problem and the inverses of Q_uu; 0 where numbers overflow. */
static int pass_strides(pfx_solver *s)
{
    enum { ALL = NDX + NU };
    outer_loop *const o = &s->outer;
    int r, i, j;
    for (i = 0; i < NDX; ++i)
        for (j = 0; j < NDX; ++j) o->V[i][j] = s->end[i * STATE_COLUMNS + state_columns[j]];
    for (r = STRIDES - 1; r >= 0; --r) {
        const int count = stride_knots[r + 1] - stride_knots[r];
        const double *const A = o->A[r][0], *const B = o->B[r][0];
        const double *const Hux = o->H[r][NDX], *const Huu = Hux + NDX;
        double *const K = o->K[r][0], *const VB = o->P[0];
        double Quu[NU][NU], more[NU];
        product(o->W[0], 0, o->V[0], NDX, 1, A, NDX, 1, NDX, NDX, NDX);
        for (i = 0; i < NU; ++i) { /* Q_ux and Q_uu = H + B' V [A, B] */
            for (j = 0; j < NDX; ++j) o->Q[i][j] = Hux[i * ALL + j];
            for (j = 0; j < NU; ++j) Quu[i][j] = Huu[i * ALL + j];
        }
        product(o->Q[0], 1, B, 1, NU, o->W[0], NDX, 1, NU, NDX, NDX);
        product(VB, 0, o->V[0], NDX, 1, B, NU, 1, NDX, NDX, NU);
        product(Quu[0], 1, B, 1, NU, VB, NU, 1, NU, NDX, NU);
        if (!is_finite(Quu[0], NU * (long)NU)) return 0;
        for (i = 0; i < NU; ++i) {
            for (j = 0; j < i; ++j) Quu[i][j] = Quu[j][i] = 0.5 * (Quu[i][j] + Quu[j][i]);
            more[i] = count * o->flattest[i] - Quu[i][i];
            if (!(more[i] > 0.0)) more[i] = 0.0;
            Quu[i][i] += more[i];
        }
        invert(Quu, o->noise[r]);
        product(K, 0, o->noise[r][0], NU, 1, o->Q[0], NDX, 1, NU, NU, NDX);
        for (i = 0; i < NU; ++i)
            for (j = 0; j < NDX; ++j) K[i * NDX + j] = -K[i * NDX + j];
        /* V of what this feedback leads to: with H_xx + H_xu K instead, digits cancel */
        for (i = 0; i < NU; ++i) /* Q = (H_uu + more) K + H_ux */
            for (j = 0; j < NDX; ++j) o->Q[i][j] = Hux[i * ALL + j] + more[i] * K[i * NDX + j];
        product(o->Q[0], 1, Huu, ALL, 1, K, NDX, 1, NU, NU, NDX);
        memcpy(o->P, o->A[r], sizeof o->P);
        product(o->P[0], 1, B, NU, 1, K, NDX, 1, NDX, NU, NDX);
        product(o->W[0], 0, o->V[0], NDX, 1, o->P[0], NDX, 1, NDX, NDX, NDX);
        for (i = 0; i < NDX; ++i)
            for (j = 0; j < NDX; ++j) o->V[i][j] = o->H[r][i][j];
        product(o->V[0], 1, o->P[0], 1, NDX, o->W[0], NDX, 1, NDX, NDX, NDX);
        product(o->V[0], 1, K, 1, NDX, o->Q[0], NDX, 1, NDX, NU, NDX);
        product(o->V[0], 1, Hux, 1, ALL, K, NDX, 1, NDX, NU, NDX);
        memcpy(o->P, o->V, sizeof o->P);
        for (i = 0; i < NDX; ++i)
            for (j = 0; j < NDX; ++j) o->V[i][j] = 0.5 * (o->P[i][j] + o->P[j][i]);
    }
    return 1;
}

/* How far each constraint gives way at the first knot of each stride, and at the end. */
static void pass_strides_forward(pfx_solver *s)
{
    outer_loop *const o = &s->outer;
    int r, c, i, j;
    memset(o->P, 0, sizeof o->P);
    for (r = 0; r <= STRIDES; ++r) {
        const int count = r < STRIDES ? stride_knots[r + 1] - stride_knots[r] : 0;
        for (c = 0; c < CONSTRAINTS; ++c) {
            double both[NDX], give = 0.0;
            memcpy(both, o->gx[r][c], sizeof both);
            if (r < STRIDES)
                product(both, 1, o->gu[r][c], NU, 1, o->K[r][0], NDX, 1, 1, NU, NDX);
            for (i = 0; i < NDX; ++i)
                for (j = 0; j < NDX; ++j) give += both[i] * o->P[i][j] * both[j];
            for (i = 0; r < STRIDES && i < NU; ++i)
                for (j = 0; j < NU; ++j)
                    give += count * o->gu[r][c][i] * o->noise[r][i][j] * o->gu[r][c][j];
            o->give[r][c] = give;
        }
        if (r == STRIDES) break;
        memcpy(o->V, o->A[r], sizeof o->V); /* V = A + B K, P = V P V' + B noise B' */
        product(o->V[0], 1, o->B[r][0], NU, 1, o->K[r][0], NDX, 1, NDX, NU, NDX);
        product(o->W[0], 0, o->V[0], NDX, 1, o->P[0], NDX, 1, NDX, NDX, NDX);
        product(o->Q[0], 0, o->noise[r][0], 1, NU, o->B[r][0], 1, NU, NU, NU, NDX);
        product(o->P[0], 0, o->W[0], NDX, 1, o->V[0], 1, NDX, NDX, NDX, NDX);
        product(o->P[0], 1, o->Q[0], 1, NDX, o->B[r][0], 1, NU, NDX, NU, NDX);
    }
}

/* With few bits: an order of magnitude is enough, and then sums in another order give the same. */
static double rounded(double x)
{
    int exponent;
    const double part = frexp(x, &exponent);
    return ldexp(nearbyint(part * PENALTY_STEPS) / PENALTY_STEPS, exponent);
}

/* Penalties become as strong as what the costs set against them, times a ratio. */
static void scale_penalty(pfx_solver *s, double ratio)
{
    outer_loop *const o = &s->outer;
    int r, k, c, known;
    measure_flattest(s, cost_alone(s, s->x, s->u));
    expand_strides(s);
    known = pass_strides(s);
    if (known) pass_strides_forward(s);
    for (c = 0; c < CONSTRAINTS; ++c) {
        double least = 0.0;
        /* rows of knots between strides first: the largest of all is needed before any */
        for (k = 0, r = 0; k <= STEPS; ++k) {
            double give;
            while (r < STRIDES - 1 && k >= stride_knots[r + 1]) ++r;
            {
                const double part = (double)(k - stride_knots[r])
                                    / (double)(stride_knots[r + 1] - stride_knots[r]);
                give = (1.0 - part) * o->give[r][c] + part * o->give[r + 1][c];
            }
            if (k == STEPS && controlled[c]) give = 0.0;
            o->multiplier[k][c] = give; /* a place that is free now */
            if (k == 0 || give > least) least = give;
        }
        least /= WIDEST;
        for (k = 0; k <= STEPS; ++k) {
            const double give = o->multiplier[k][c] < least ? least : o->multiplier[k][c];
            const double found = known && least > 0.0 ? rounded(ratio / give) : NAN;
            *number_of(s, k, penalty_places, c) = isfinite(found) ? found : FIRST_PENALTY;
        }
    }
}

/* --- multipliers and corners --- */

/* What roundings are measured by. */
static void measure_corners(pfx_solver *s)
{
    const double cost = fabs(cost_alone(s, s->x, s->u));
    int k, i;
    measure(s, s->x, s->u);
    for (i = 0; i < CONSTRAINTS; ++i) {
        double reach = 0.0, away = 0.0, found;
        for (k = 0; k <= STEPS; ++k) {
            const double c = s->outer.c[k][i], low = lower_at(s, k, i), high = upper_at(s, k, i);
            const double far = sqrt(2.0 * RATIO * cost / *number_of(s, k, penalty_places, i));
            if (far > reach) reach = far;
            if (low > -FAR_BOUND || high < FAR_BOUND) {
                const double under = fabs(c - low), over = fabs(c - high);
                const double near = over < under ? over : under;
                if (near > away) away = near;
            }
        }
        found = away > 0.0 && away < reach ? away : reach;
        s->outer.corner[i] = found > 0.0 ? found : 1.0;
    }
}

static void soften(pfx_solver *s, double width)
{
    int k, i;
    for (k = 0; k <= STEPS; ++k)
        for (i = 0; i < CONSTRAINTS; ++i) {
            const double low = *number_of(s, k, lower_places, i);
            const double high = *number_of(s, k, upper_places, i);
            const double corner = s->outer.corner[i];
            double half = corner;
            if (low > -FAR_BOUND && high < FAR_BOUND && 0.5 * (high - low) < corner)
                half = 0.5 * (high - low);
            half = 2.0 * width * half;
            *number_of(s, k, softness_places, i) = half * half + SHARP * (corner * corner);
        }
}

static int has_corners(const pfx_solver *s)
{
    int k, i;
    for (k = 0; k <= STEPS; ++k)
        for (i = 0; i < CONSTRAINTS; ++i) {
            const double low = *number_of(s, k, lower_places, i);
            const double high = *number_of(s, k, upper_places, i);
            if ((low > -FAR_BOUND || high < FAR_BOUND) && low < high) return 1;
        }
    return 0;
}

/* How far each constraint may be off: in its own unit, or in that of what it moves with. */
static void measure_limits(pfx_solver *s)
{
    double gx[CONSTRAINTS][NDX], gu[CONSTRAINTS][NU], size[CONSTRAINTS];
    int k, i, j;
    memset(size, 0, sizeof size);
    for (k = 0; k <= STEPS; ++k) {
        constraint_jacobians_of(
            s->x[k], s->u[k < STEPS ? k : STEPS - 1], row_of(s, k), gx[0], gu[0]);
        for (i = 0; i < CONSTRAINTS; ++i) {
            double sum = 0.0;
            for (j = 0; j < NDX; ++j) sum += gx[i][j] * gx[i][j];
            for (j = 0; k < STEPS && j < NU; ++j) sum += gu[i][j] * gu[i][j];
            if (sqrt(sum) > size[i]) size[i] = sqrt(sum);
        }
    }
    for (i = 0; i < CONSTRAINTS; ++i)
        s->outer.limit[i] = VIOLATION * (size[i] > 0.0 && size[i] < 1.0 ? size[i] : 1.0);
}

/* How a trajectory stands to its constraints: the largest excess of each, the multipliers that it
 * calls for, and the sum of these times distances to bounds. */
static void stand(pfx_solver *s, double (*x)[NX], double (*u)[NU])
{
    outer_loop *const o = &s->outer;
    int k, i;
    measure(s, x, u);
    o->gap = 0.0;
    memset(o->excess, 0, sizeof o->excess);
    for (k = 0; k <= STEPS; ++k)
        for (i = 0; i < CONSTRAINTS; ++i) {
            const double c = o->c[k][i], low = lower_at(s, k, i), high = upper_at(s, k, i);
            const double mu = *number_of(s, k, penalty_places, i);
            const double softness = *number_of(s, k, softness_places, i);
            const double y = c + *number_of(s, k, multiplier_places, i) / mu;
            const double over = y - high, under = low - y;
            const int above = over > under;
            const double t = above ? over : under;
            const double q = sqrt(t * t + softness), a = 0.5 * (q + fabs(t));
            const double r = t < 0.0 ? 0.25 * softness / a : a;
            const double multiplier = mu * r * r / q;
            const double size = fabs(beyond(c, low, high));
            o->gap += multiplier * fabs(above ? high - c : c - low);
            if (!(size <= o->excess[i])) o->excess[i] = size;
            o->multiplier[k][i] = above ? multiplier : -multiplier;
        }
}

/* Measures penalties, corners and tolerances around the first guess; or goes on with multipliers
 * that came with it. */
OWN void begin_outer(pfx_solver *s)
{
    outer_loop *const o = &s->outer;
    int k, i;
    o->times = 0;
    o->width = FIRST_WIDTH;
    o->tolerance = TOLERANCE;
    for (i = 0; i < CONSTRAINTS; ++i) o->last[i] = INFINITY;
    measure_limits(s);
    if (!s->own.learnt) {
        scale_penalty(s, RATIO);
        if (o->tolerance < FIRST_TOLERANCE) o->tolerance = FIRST_TOLERANCE;
    }
    measure_corners(s);
    if (s->own.learnt || !has_corners(s)) o->width = LEAST_WIDTH;
    for (k = 0; k <= STEPS; ++k)
        for (i = 0; i < CONSTRAINTS; ++i)
            o->most[k][i] = MOST_GROWTH * *number_of(s, k, penalty_places, i);
    soften(s, o->width);
}

/* The final status; or RUNNING where the descent goes on, with new multipliers. */
OWN int after_descent(pfx_solver *s, int status)
{
    outer_loop *const o = &s->outer;
    double cost, least;
    int off = 0, settled, resting, k, i;
    stand(s, s->x, s->u);
    for (i = 0; i < CONSTRAINTS; ++i) off |= o->excess[i] > o->limit[i];
    cost = fabs(cost_alone(s, s->x, s->u));
    least = s->negligible / SMALL_GAP > 1e-300 ? s->negligible / SMALL_GAP : 1e-300;
    settled = !off && o->gap / (cost > least ? cost : least) <= SMALL_GAP;
    if (settled && o->tolerance <= TOLERANCE && o->width <= LEAST_WIDTH) return status;
    if (s->iterations >= s->most) return PFX_ITERATIONS;
    if (++o->times >= TIMES)
        return off ? PFX_INFEASIBLE : status == PFX_CONVERGED ? PFX_SLOW : status;
    for (k = 0; k <= STEPS; ++k)
        for (i = 0; i < CONSTRAINTS; ++i) {
            double *const mu = number_of(s, k, penalty_places, i);
            const int stuck = o->excess[i] > o->limit[i] && o->excess[i] > FALL * o->last[i];
            const double grown = *mu * (stuck ? GROW : 1.0);
            const double most = o->most[k][i] > *mu ? o->most[k][i] : *mu;
            *number_of(s, k, multiplier_places, i) = o->multiplier[k][i];
            *mu = grown < most ? grown : most;
        }
    resting = settled && o->tolerance <= TOLERANCE && status == PFX_CONVERGED;
    o->width *= resting ? SHARPEN_AT_REST : SHARPEN;
    if (o->width < LEAST_WIDTH) o->width = LEAST_WIDTH;
    soften(s, o->width);
    if (settled)
        o->tolerance = TOLERANCE;
    else
        o->tolerance = TIGHTEN * o->tolerance > TOLERANCE ? TIGHTEN * o->tolerance : TOLERANCE;
    memcpy(o->last, o->excess, sizeof o->last);
    return RUNNING;
}
