/* --- parallel DDP with one block, which is iLQR: the steps of rigidgrad's own solver ------------- */

enum { RUNNING = -1 };

struct pfx_solver {
    pfx_numbers own;                     /* what the last call was given, with multipliers */
    double x[STEPS + 1][NX], u[STEPS][NU]; /* the reference that gains act around */
    double gains[STEPS][NU][COLUMNS];
    double F[STEPS][F_SIZE], l[STEPS][COLUMNS], L[STEPS][L_SIZE];
#if MOVE_SIZE
    double move[STEPS][MOVE_SIZE];
#endif
#if BOUNDED
    double box_lower[STEPS][NU], box_upper[STEPS][NU], active[STEPS][NU];
#endif
    double gap[STEPS][NDX];              /* f(x_k, u_k) - x_(k+1) of the reference */
    double end[VALUE_SIZE], start[VALUE_SIZE], scratch[SCRATCH], results[3], numbers[2];
    double next[STEPS][NX], costs[STEPS + 1][2];
#if GAPS
    double dx[STEPS + 1][NDX];
#endif
    double kept[STEPS][NU];              /* corrections of controls, while they count for nothing */
    double J, expected, sigma, negligible;
    long iterations, most;               /* of a solve; at most */
    int open;                            /* whether states were guessed, and may have gaps */
    pfx_clock clock;
    void *clock_context;
    double deadline;
#if CONSTRAINTS
    outer_loop outer;
#endif
#if DIRECT
    direct_loop direct;
#endif
    wide X[PARTS][STEPS + 1][NX], U[PARTS][STEPS][NU], C[PARTS][STEPS + 1][2], total[2];
    expansion_columns columns;
};

static const double step_sizes[SIZES] = ALPHAS;

/* Numbers of one lane. These three are functions of their own: where the arrays were parts of one
 * structure, gcc 12 at -O1 and above took one address for eight times the other, no longer knew what
 * is written there, and left the whole copy out. */
APART void take_lane(double *restrict to, const wide *restrict from, int lane, int count)
{
    const double *const first = (const double *)(const void *)from + lane;
    int i;
    for (i = 0; i < count; ++i) to[i] = first[i * WIDTH];
}

APART void fill_lane(wide *restrict to, const double *restrict from, int lane, int count)
{
    double *const first = (double *)(void *)to + lane;
    int i;
    for (i = 0; i < count; ++i) first[i * WIDTH] = from[i];
}

APART void take_places(
    double *restrict to, const wide *restrict from, int lane, const int *places, int count)
{
    const double *const first = (const double *)(const void *)from + lane;
    int i;
    for (i = 0; i < count; ++i) to[places[i]] = first[places[i] * WIDTH];
}

static wide in_all_lanes(double x)
{
#if LANES
    return x - (wide){0};
#else
    return x;
#endif
}

static int is_finite(const double *x, long count)
{
    long i;
    for (i = 0; i < count; ++i)
        if (!isfinite(x[i])) return 0;
    return 1;
}

static double largest(const double *x, long count)
{
    double found = 0.0;
    long i;
    for (i = 0; i < count; ++i)
        if (!(fabs(x[i]) <= found)) found = fabs(x[i]);
    return found;
}

OWN double total_size(const double *x, long count)
{
    double sum = 0.0;
    long i;
    for (i = 0; i < count; ++i) sum += fabs(x[i]);
    return sum;
}

/* The sum of numbers `stride` apart, added in NumPy's order: in pairs. */
static double sum_of(const double *x, long count, long stride)
{
    double sums[8], sum;
    long i, j;
    if (count < 8) {
        sum = 0.0;
        for (i = 0; i < count; ++i) sum += x[i * stride];
        return sum;
    }
    if (count > 128) {
        const long half = count / 2 - count / 2 % 8;
        return sum_of(x, half, stride) + sum_of(x + half * stride, count - half, stride);
    }
    for (j = 0; j < 8; ++j) sums[j] = x[j * stride];
    for (i = 8; i < count - count % 8; i += 8)
        for (j = 0; j < 8; ++j) sums[j] += x[(i + j) * stride];
    sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    for (; i < count; ++i) sum += x[i * stride];
    return sum;
}

OWN int is_late(const pfx_solver *s)
{
    return s->clock && s->clock(s->clock_context) > s->deadline;
}

/* --- functions of a whole trajectory --- */

/* The next states and the costs of all knots, without and with penalties. */
static void evaluate(pfx_solver *s, double (*x)[NX], double (*u)[NU])
{
    int k;
    for (k = 0; k < STEPS; ++k)
        evaluation__64(x[k], u[k], &s->own.h[k], row_of(s, k), s->next[k], s->costs[k]);
    final_evaluation__64(x[STEPS], row_of(s, STEPS), s->costs[STEPS]);
}

OWN double cost_with_penalties(pfx_solver *s, double (*x)[NX], double (*u)[NU])
{
    double both[STEPS + 1];
    int k;
    evaluate(s, x, u);
    for (k = 0; k <= STEPS; ++k) both[k] = s->costs[k][0] + s->costs[k][1];
    return sum_of(both, STEPS + 1, 1);
}

static double cost_alone(pfx_solver *s, double (*x)[NX], double (*u)[NU])
{
    evaluate(s, x, u);
    return sum_of(s->costs[0], STEPS, 2) + s->costs[STEPS][0];
}

/* A cost as good as none: that of residuals of 1e-12. */
static double negligible_cost(const pfx_solver *s)
{
    double sum = 0.0;
    int k, i;
    for (k = 0; k <= STEPS; ++k)
        for (i = 0; i < WEIGHTS; ++i) sum += row_of(s, k)[weight_places[i]];
    return 0.5 * 1e-12 * 1e-12 * sum;
}

OWN int any_gap(const pfx_solver *s)
{
#if GAPS
    int k, i;
    for (k = 0; k < STEPS; ++k)
        for (i = 0; i < NDX; ++i)
            if (s->gap[k][i] != 0.0) return 1;
#else
    (void)s;
#endif
    return 0;
}

/* --- the passes --- */

static void expand(pfx_solver *s)
{
    int k;
#if BOUNDED
    int i;
    for (k = 0; k < STEPS; ++k) /* bounds hold for the controls that are at theirs now */
        for (i = 0; i < NU; ++i) {
            const int low = s->u[k][i] <= s->own.lower[k][i];
            const int high = s->u[k][i] >= s->own.upper[k][i];
            s->box_lower[k][i] = low ? s->own.lower[k][i] : -INFINITY;
            s->box_upper[k][i] = high ? s->own.upper[k][i] : INFINITY;
            s->active[k][i] *= low || high;
        }
#endif
    for (k = 0; k < STEPS; k += WIDTH) expand_knots(s, k, STEPS - k < WIDTH ? STEPS - k : WIDTH);
    final_expansion__64(s->x[STEPS], row_of(s, STEPS), s->end);
}

/* Whether H_uu is positive definite everywhere; the slope and curvature along a whole step. */
static int pass_back(pfx_solver *s, double rho, double *slope, double *curve)
{
    static const long ranges[2] = {0, STEPS};
    riccati__context context;
    memset(&context, 0, sizeof context);
    context.ranges = ranges;
    context.F = s->F[0];
    context.l = s->l[0];
    context.L = s->L[0];
    context.gains = s->gains[0][0];
    context.end = s->end;
    context.start = s->start;
    context.numbers = s->numbers;
    context.results = s->results;
    context.scratch = s->scratch;
    context.defects = s->gap[0];
    context.u = s->u[0];
#if MOVE_SIZE
    context.move = s->move[0];
#endif
#if BOUNDED
    context.lower = s->box_lower[0];
    context.upper = s->box_upper[0];
    context.active = s->active[0];
#endif
    s->numbers[0] = rho;
    s->numbers[1] = s->own.h[0];
    riccati(&context, 0, 1);
    *slope = s->results[0];
    *curve = s->results[1];
    return s->results[2] == 1.0 && isfinite(s->results[0]);
}

/* Simulates a vector of step sizes; costs with penalties go into J. */
static void simulate(pfx_solver *s, int part, int with_gaps, wide alpha, double J[WIDTH])
{
    double both[2][WIDTH];
    int k, lane;
    for (k = 0; k < NX; ++k) s->X[part][0][k] = in_all_lanes(s->own.start[k]);
    s->C[part][0][0] = s->C[part][0][1] = in_all_lanes(0.0);
    for (k = 0; k < STEPS; ++k) roll_out_knot(s, part, k, with_gaps, &alpha);
    WIDE_NAME(final_cost)(s->X[part][STEPS], s->C[part][STEPS], row_of(s, STEPS), s->total);
    memcpy(both, s->total, sizeof both);
    for (lane = 0; lane < WIDTH; ++lane) J[lane] = both[0][lane] + both[1][lane];
}

/* One of the simulated trajectories becomes the reference. */
static void take(pfx_solver *s, int which)
{
    const int part = which / WIDTH, lane = which % WIDTH;
    int k;
    for (k = 0; k <= STEPS; ++k) take_lane(s->x[k], s->X[part][k], lane, NX);
    for (k = 0; k < STEPS; ++k) take_lane(s->u[k], s->U[part][k], lane, NU);
}

OWN void take_step(pfx_solver *s, int which)
{
    take(s, which);
#if GAPS
    {
        int k, i;
        for (k = 0; k < STEPS; ++k)
            for (i = 0; i < NDX; ++i) {
                s->gap[k][i] *= 1.0 - step_sizes[which];
                if (fabs(s->gap[k][i]) < 1e-12) s->gap[k][i] = 0.0;
            }
    }
#endif
}

/* From the start, with the controls of the reference and the gains around it; the result becomes
 * the reference. */
OWN void roll_out(pfx_solver *s)
{
    double J[WIDTH];
    int k, i;
    for (k = 0; k < STEPS; ++k)
        for (i = 0; i < NU; ++i) {
            s->kept[k][i] = s->gains[k][i][CORRECTION];
            s->gains[k][i][CORRECTION] = 0.0;
        }
    simulate(s, 0, 0, in_all_lanes(1.0), J);
    for (k = 0; k < STEPS; ++k)
        for (i = 0; i < NU; ++i) s->gains[k][i][CORRECTION] = s->kept[k][i];
    s->J = J[0];
    take(s, 0);
    memset(s->gap, 0, sizeof s->gap);
}

/* --- the step size --- */

/* The number of the step size that is taken of those that are fine, or -1. */
static int choose(const double *fine, const double *merits, int count)
{
    const double best = CHOOSE == 2 && WHOLE < count ? fine[WHOLE] : CHOOSE == 1;
    double chosen = -1.0, least = INFINITY;
    int k;
    for (k = 0; k < count; ++k)
        if (policy_takes_over(fine[k], merits[k], chosen, least, best) > 0.0) {
            chosen = k;
            least = merits[k];
        }
    return (int)chosen;
}

#if !DIRECT
#if GAPS
/* How far a whole step of the linearised problem moves the states; the slope and curvature of the
 * cost along it. */
static void model_along_step(pfx_solver *s, double *slope, double *curve)
{
    const double one = 1.0;
    double step[COLUMNS];
    int k, i, j;
    memset(s->dx[0], 0, sizeof s->dx[0]);
    *slope = *curve = 0.0;
    for (k = 0; k < STEPS; ++k) {
        memset(step, 0, sizeof step);
        consensus_knot(s, k, &one);
        for (i = 0; i < NDX; ++i) step[state_columns[i]] = s->dx[k][i];
        for (i = 0; i < NU; ++i) {
            double du = 0.0;
            for (j = 0; j < STATE_COLUMNS; ++j) du += s->gains[k][i][j] * step[j];
            step[STATE_COLUMNS + i] = s->gains[k][i][CORRECTION] + du;
        }
        for (i = 0; i < COLUMNS; ++i) *slope += s->l[k][i] * step[i];
        for (i = 0; i < NDX + NU; ++i) {
            const int row = i < NDX ? state_columns[i] : STATE_COLUMNS + i - NDX;
#if DIAGONAL
            *curve += step[row] * s->L[k][row] * step[row];
#else
            for (j = 0; j < COLUMNS; ++j) *curve += step[row] * s->L[k][i * COLUMNS + j] * step[j];
#endif
        }
    }
    for (i = 0; i < NDX; ++i) {
        const double *row = s->end + i * STATE_COLUMNS;
        *slope += s->end[NDX * STATE_COLUMNS + state_columns[i]] * s->dx[STEPS][i];
        for (j = 0; j < NDX; ++j)
            *curve += s->dx[STEPS][i] * row[state_columns[j]] * s->dx[STEPS][j];
    }
}

/* With gaps: steps that lower J + sigma * sum |gap| enough. */
static int search_merit(pfx_solver *s, const double *J, double *cost, double *expected)
{
    double slope, curve, fine[SIZES], merits[SIZES];
    const double before = total_size(s->gap[0], STEPS * NDX), worst = largest(s->gap[0], STEPS * NDX);
    int k, chosen;
    model_along_step(s, &slope, &curve);
    if (before > 0.0) s->sigma = policy_penalty(s->sigma, before, slope, curve);
    for (k = 0; k < SIZES; ++k) {
        const double left = fabs(1.0 - step_sizes[k]), after = left * before;
        const double fall = s->J - J[k] + s->sigma * (before - after);
        merits[k] = J[k] + s->sigma * after;
        fine[k] = policy_acceptable_with_defects(
            fall, step_sizes[k], slope, s->sigma * before, left * worst, ARMIJO, DEFECT);
    }
    *expected = s->sigma * before - slope - 0.5 * curve;
    chosen = choose(fine, merits, SIZES);
    *cost = chosen < 0 ? s->J : J[chosen];
    return chosen;
}
#endif

/* The step size that is taken, or -1; the cost with it, and the fall expected of a whole step. */
static int search(pfx_solver *s, double slope, double curve, double *cost, double *expected)
{
    double J[PARTS * WIDTH], fine[SIZES];
    int part = 0, upto, k, chosen;
#if GAPS
    if (any_gap(s)) {
        for (; part < PARTS; ++part) simulate(s, part, 1, sizes_of(part), J + part * WIDTH);
        return search_merit(s, J, cost, expected);
    }
#endif
    *expected = policy_expected_fall(step_sizes[WHOLE], slope, curve);
    for (upto = FIRST_SIZES;; upto = SIZES) { /* small ones wait until the first are refused */
        for (; part * WIDTH < upto; ++part)
            simulate(s, part, s->open, sizes_of(part), J + part * WIDTH);
        for (k = 0; k < upto; ++k) {
            const double hoped = policy_expected_fall(step_sizes[k], slope, curve);
            fine[k] = policy_acceptable(s->J - J[k], hoped, ACCEPT_LOW, ACCEPT_HIGH);
        }
        chosen = choose(fine, J, upto);
        if (chosen >= 0) {
            *cost = J[chosen];
            return chosen;
        }
        if (upto == SIZES) break;
    }
    *cost = s->J;
    return -1;
}

/* --- a descent --- */

/* Why H_uu is not positive definite whatever the regularisation. */
static int trouble(const pfx_solver *s)
{
    int fine = is_finite(s->F[0], STEPS * (long)F_SIZE) && is_finite(s->l[0], STEPS * (long)COLUMNS)
               && is_finite(s->L[0], STEPS * (long)L_SIZE);
#if MOVE_SIZE
    fine = fine && is_finite(s->move[0], STEPS * (long)MOVE_SIZE);
#endif
    return fine ? PFX_SINGULAR : PFX_UNDEFINED;
}

/* Whether a whole step without regularisation promises nothing either. */
static int nothing_left(pfx_solver *s, double tolerance)
{
    const double tried[2] = {0.0, RHO_LOW};
    double slope, curve;
    int k;
    for (k = 0; k < 2; ++k)
        if (pass_back(s, tried[k], &slope, &curve)) {
            const double part = tolerance * fabs(s->J);
            s->expected = -(slope + 0.5 * curve);
            return s->expected <= (part > s->negligible ? part : s->negligible);
        }
    return 0;
}

/* Iterates until the gradient promises no more than `tolerance` of the cost, up to `most`
 * iterations; the status. With `linearized` the first iteration has been begun. */
static int descend(pfx_solver *s, double tolerance, long most, int linearized)
{
    double rho = 0.0;
    int slow = 0;
    while (s->iterations < most) {
        double slope, curve, cost, expected, fall, small, least = 0.0;
        int chosen, measured, light, closed;
        ++s->iterations;
        if (!linearized) expand(s);
        for (;;) {
            int fine;
            if (linearized) { /* passed back already */
                slope = s->results[0];
                curve = s->results[1];
                fine = s->results[2] == 1.0 && isfinite(slope);
                linearized = 0;
            } else
                fine = pass_back(s, rho, &slope, &curve);
            if (!fine) {
                least = rho = policy_raised(rho, RHO_LOW);
                if (rho > RHO_HIGH) return trouble(s);
                if (is_late(s)) return PFX_TIME;
                continue;
            }
            chosen = search(s, slope, curve, &cost, &expected);
            measured = rho <= (least < RHO_LOW ? least : RHO_LOW);
            if (measured) s->expected = expected;
            if (chosen >= 0 || expected <= policy_nothing(tolerance, s->J, s->negligible)) break;
            rho = policy_raised(rho, RHO_LOW);
            if (rho > RHO_HIGH)
                return nothing_left(s, STALLED * tolerance) ? PFX_CONVERGED : PFX_STALLED;
            if (is_late(s)) return PFX_TIME;
        }
        if (chosen < 0)
            return measured || nothing_left(s, STALLED * tolerance) ? PFX_CONVERGED : PFX_STALLED;
        take_step(s, chosen);
        fall = s->J - cost;
        s->J = cost;
        small = policy_nothing(tolerance, s->J, s->negligible);
        light = rho <= RHO_LOW; /* a step that regularisation holds back tells nothing */
        closed = !GAPS || s->sigma * total_size(s->gap[0], STEPS * NDX) <= 10.0 * small;
        rho = policy_lowered(rho, RHO_LOW);
        if (light && closed) {
            if (expected <= small && (measured || nothing_left(s, tolerance))) return PFX_CONVERGED;
            if (tolerance > TOLERANCE && fabs(fall) <= small && step_sizes[chosen] >= TELLING)
                return PFX_CONVERGED;
        }
        slow = fabs(fall) <= small ? slow + 1 : 0;
        if (slow >= PATIENCE) return PFX_SLOW;
        if (is_late(s)) return PFX_TIME;
    }
    return PFX_ITERATIONS;
}
#endif

/* --- a solve --- */

static void forget(pfx_solver *s)
{
    s->iterations = 0;
    s->open = 0;
    s->sigma = 0.0;
    s->J = s->expected = INFINITY;
}

/* Reads numbers that a caller set; multipliers stay. */
static void read_bounds(pfx_solver *s)
{
#if BOUNDED
    memset(s->active, 0, sizeof s->active);
#endif
    s->negligible = negligible_cost(s);
}

#if !DIRECT
/* Simulates the first guess, or measures its gaps; whether that stays finite. */
static int begin(pfx_solver *s)
{
    int k;
#if BOUNDED
    int i;
#endif
    read_bounds(s);
    memset(s->gains, 0, sizeof s->gains);
    memset(s->gap, 0, sizeof s->gap);
    memcpy(s->u, s->own.u, sizeof s->u);
#if BOUNDED
    for (k = 0; k < STEPS; ++k)
        for (i = 0; i < NU; ++i) {
            if (s->u[k][i] < s->own.lower[k][i]) s->u[k][i] = s->own.lower[k][i];
            if (s->u[k][i] > s->own.upper[k][i]) s->u[k][i] = s->own.upper[k][i];
        }
#endif
#if GAPS
    s->open = 1;
    memcpy(s->x, s->own.x, sizeof s->x);
    memcpy(s->x[0], s->own.start, sizeof s->x[0]);
    s->J = cost_with_penalties(s, s->x, s->u);
    for (k = 0; k < STEPS; ++k) subtract(s->next[k], s->x[k + 1], s->gap[k]);
#else
    for (k = 0; k <= STEPS; ++k) memcpy(s->x[k], s->own.start, sizeof s->x[k]);
    roll_out(s);
#endif
    return isfinite(s->J) && is_finite(s->x[0], (STEPS + 1) * (long)NX);
}

/* Solves from the first guess among the numbers of the solver, by `most` iterations; the status. It
 * ends with a motion from the start. */
static int solve_own(pfx_solver *s, long most)
{
    int status = RUNNING;
    s->deadline = INFINITY;
    s->most = most;
    forget(s);
#if CONSTRAINTS
    forget_multipliers(s);
#endif
    if (!begin(s)) return PFX_DIVERGED;
#if CONSTRAINTS
    begin_outer(s);
    s->J = cost_with_penalties(s, s->x, s->u);
#endif
    while (status == RUNNING) {
#if CONSTRAINTS
        const int ended = descend(s, s->outer.tolerance, most, 0);
        if (ended == PFX_CONVERGED && any_gap(s)) roll_out(s); /* constraints judge a motion */
        status = after_descent(s, ended);
        if (status == RUNNING) s->J = cost_with_penalties(s, s->x, s->u);
#else
        status = descend(s, TOLERANCE, most, 0);
#endif
    }
    if (any_gap(s)) roll_out(s);
    return status;
}
#endif
/*DIRECT*/

static void finish(pfx_solver *s, int status, pfx_solution *found)
{
    int k, i, j;
    found->cost = status == PFX_DIVERGED ? INFINITY : cost_alone(s, s->x, s->u);
    if (status == PFX_DIVERGED) {
        evaluate(s, s->x, s->u);
        if (largest(s->x[0], (STEPS + 1) * (long)NX) < 1e100
            && largest(s->next[0], STEPS * (long)NX) < 1e100)
            status = PFX_UNDEFINED; /* the motion is fine, its cost is not */
    }
    found->status = status;
    found->iterations = s->iterations;
    found->expected = s->expected;
    memcpy(found->x, s->x, sizeof s->x);
    memcpy(found->u, s->u, sizeof s->u);
    for (k = 0; k < STEPS; ++k)
        for (i = 0; i < NU; ++i)
            for (j = 0; j < NDX; ++j) found->K[k][i][j] = s->gains[k][i][state_columns[j]];
#if CONSTRAINTS
    found->violation = violation_of(s, s->x, s->u);
#else
    found->violation = 0.0;
#endif
}

size_t pfx_memory(void) { return sizeof(pfx_solver) + 64; }

pfx_solver *pfx_init(void *memory, size_t size)
{
    char *place = memory;
    if (!memory || size < pfx_memory()) return NULL;
    place += (64 - (uintptr_t)place % 64) % 64;
    memset(place, 0, sizeof(pfx_solver));
    return (pfx_solver *)(void *)place;
}

void pfx_set_clock(pfx_solver *s, pfx_clock clock, void *context)
{
    s->clock = clock;
    s->clock_context = context;
    s->deadline = INFINITY;
}

int pfx_solve(pfx_solver *s, const pfx_numbers *numbers, pfx_solution *found)
{
    memcpy(&s->own, numbers, sizeof s->own);
    finish(s, solve_own(s, ITERATIONS), found);
    return found->status;
}

const char *pfx_message(int status)
{
    static const char *const messages[] = MESSAGES;
    return status < 0 || status > PFX_TIME ? "no status" : messages[status];
}
