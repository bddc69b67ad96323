/* --- a controller: plans in time, shifted, improved, and followed by feedback ------------------- */

#define ROUNDING 1e-9          /* seconds; times nearer to each other are the same */
#define PREDICTION_STEP 0.002  /* seconds */
#define HUGE_NUMBER 1e12
#define FAILURES 2             /* in a row, after which a plan is made from cold */
#define FURTHER 5              /* iterations of a plan that is not accepted */

typedef struct {
    double start; /* -INFINITY: none */
    double x[STEPS + 1][NX], u[STEPS][NU], gains[STEPS][NU][COLUMNS];
    double pace; /* the part of its speed at which it is followed */
    int held;    /* whether the posture is held instead */
} plan;

struct pfx_mpc {
    pfx_numbers numbers; /* what a caller sets */
    plan plans[WAITING + 2];
    int order[WAITING + 2]; /* the plan that acts, those that wait, spare ones */
    int waiting;
    double now, due, given[NU], held_at[NX];
    int failures, held, began;
    pfx_counts counts;
    pfx_steer steer;
    pfx_accepts accepts;
    void *steering;
    double seen_weights[STEPS + 1][WEIGHTS + 1], seen_step;
#if PHASES
    double motion_begins; /* NAN: with the next plan */
    int passed;           /* steps that are over */
#endif
#if OBSERVER
    double force[NV], cancel[NU], seen_at, seen[NX], acted[NV]; /* of joints, and as controls */
    int observed;
#endif
#if INTEGRAL
    double shift[3], integrated_at; /* of the target, m */
#endif
#if CONSTRAINTS
    /* of the last plan; penalties without their growth */
    double multiplier[STEPS + 1][CONSTRAINTS], penalty[STEPS + 1][CONSTRAINTS];
    double softness[STEPS + 1][CONSTRAINTS], growth[CONSTRAINTS], worst[CONSTRAINTS];
    double margin[CONSTRAINTS], outside[CONSTRAINTS], fitted;
    int scaled, waited;
#endif
    pfx_solver solver;
};

static double time_step(const pfx_mpc *m) { return m->numbers.h[0]; }

/* The knot of the motion whose numbers a knot of the plan has; beyond the end those of the last
 * step go on. */
static int knot_in_motion(const pfx_mpc *m, int k)
{
#if PHASES
    if (k == STEPS) return k;
    return k + m->passed < STEPS ? k + m->passed : STEPS - 1;
#else
    (void)m;
    return k;
#endif
}

static const double *row_asked(const pfx_mpc *m, int k)
{
    return (const double *)(const void *)&m->numbers.knot[knot_in_motion(m, k)];
}

static plan *acting(pfx_mpc *m) { return &m->plans[m->order[0]]; }

static plan *newest(pfx_mpc *m) { return &m->plans[m->order[m->waiting]]; }

static double end_of(const pfx_mpc *m, const plan *p) { return p->start + STEPS * time_step(m); }

/* A plan's own time, which passes at its pace, and not at all where the posture is held instead. */
static double phase_of(const plan *p, double t)
{
    return p->held ? p->start : p->start + p->pace * (t - p->start);
}

/* The newest plan whose time has come acts. */
static void activate(pfx_mpc *m, double t)
{
    int k;
    while (m->waiting && t >= m->plans[m->order[1]].start - ROUNDING) {
        const int over = m->order[0];
        for (k = 0; k < WAITING + 1; ++k) m->order[k] = m->order[k + 1];
        m->order[WAITING + 1] = over;
        --m->waiting;
    }
}

/* The plan that will act at a time to come, as far as that is known. */
static plan *acting_at(pfx_mpc *m, double t)
{
    int k;
    for (k = m->waiting; k > 0; --k)
        if (m->plans[m->order[k]].start <= t + ROUNDING) return &m->plans[m->order[k]];
    return acting(m);
}

/* The knot before a time, and the part of a step beyond it. */
static int knot_of(const pfx_mpc *m, const plan *p, double t, double *part)
{
    double s = (t - p->start) / time_step(m);
    int k;
    s = s > 0.0 ? s : 0.0;
    s = s < (double)STEPS ? s : (double)STEPS;
    k = (int)(s + ROUNDING);
    *part = s - k > 0.0 ? s - k : 0.0;
    return k;
}

/* The state at a part of the way from a to b. */
static void between(const double *a, const double *b, double part, double *x)
{
    int i;
#if FLAT
    for (i = 0; i < NX; ++i) x[i] = part > 0.0 ? a[i] + part * (b[i] - a[i]) : a[i];
#else
    double away[NDX];
    if (!(part > 0.0)) {
        memcpy(x, a, NX * sizeof *x);
        return;
    }
    subtract(b, a, away);
    for (i = 0; i < NDX; ++i) away[i] *= part;
    plus__64(a, away, x);
#endif
}

/* The control of a time, corrected for being at x, unless that is NULL. */
static void follow_plan(const pfx_mpc *m, const plan *p, double t, const double *x, double *u)
{
    double part, reference[NX], away[NDX];
    int k = knot_of(m, p, t, &part), i, j;
    if (k == STEPS) {
        k = STEPS - 1;
        part = 1.0;
    }
    memset(away, 0, sizeof away);
    if (x) {
        between(p->x[k], p->x[k + 1], part, reference);
        subtract(x, reference, away);
    }
    for (i = 0; i < NU; ++i) {
        double sum = 0.0;
        for (j = 0; x && j < NDX; ++j) sum += p->gains[k][i][state_columns[j]] * away[j];
        u[i] = p->u[k][i] + sum;
    }
}

/* Bounds of the controls now; infinite where there are none. */
static double low_of(const pfx_mpc *m, int i)
{
#if BOUNDED
    return m->numbers.lower[knot_in_motion(m, 0)][i];
#else
    (void)m;
    (void)i;
    return -INFINITY;
#endif
}

static double high_of(const pfx_mpc *m, int i)
{
#if BOUNDED
    return m->numbers.upper[knot_in_motion(m, 0)][i];
#else
    (void)m;
    (void)i;
    return INFINITY;
#endif
}

/* What an observer cancels of control i. */
static double cancelled(const pfx_mpc *m, int i)
{
#if OBSERVER
    return m->cancel[i];
#else
    (void)m;
    (void)i;
    return 0.0;
#endif
}

static void clip(const pfx_mpc *m, double *u, int with_cancelled)
{
    int i;
    for (i = 0; i < NU; ++i) {
        const double shift = with_cancelled ? cancelled(m, i) : 0.0;
        const double low = low_of(m, i) + shift, high = high_of(m, i) + shift;
        u[i] = u[i] > low ? u[i] : low;
        u[i] = u[i] < high ? u[i] : high;
    }
}

/*POSTURES*/

/* By a plan's feedback, or, at another pace than its own, along its path. */
static void follow(const pfx_mpc *m, const plan *p, double t, const double *x, double *u)
{
#if ROBOT && CONSTRAINTS && POLICY == 1
    if (p->pace != 1.0) {
        slowed(m, p, t, x, u);
        return;
    }
#endif
    follow_plan(m, p, t, x, u);
}

/* --- plans --- */

/* The reference becomes a plan, from t on; beyond its end it rests, or, on contacts, which will be
 * others by then, goes on as in its last step. */
static void shift_into(pfx_mpc *m, const plan *p, double t)
{
    pfx_solver *const s = &m->solver;
    double part, tail[NU];
    const int whole = knot_of(m, p, phase_of(p, t), &part), left = STEPS - whole;
    const int inside = part > 0.0 && left ? left - 1 : left;
    int k, i;
#if CONTACTS
    memcpy(tail, p->u[STEPS - 1], sizeof tail);
#else
    resting(m, p->x[STEPS], tail);
#endif
    for (k = 0; k <= STEPS; ++k)
        between(p->x[k < left ? whole + k : STEPS], p->x[k < left ? whole + k + 1 : STEPS],
                k < left ? part : 0.0, s->x[k]);
    for (k = 0; k < STEPS; ++k) {
        memcpy(s->gains[k], p->gains[k < left ? whole + k : STEPS - 1], sizeof s->gains[k]);
        for (i = 0; i < NU; ++i) {
            const double before = p->u[k < inside ? whole + k : 0][i];
            const double after = p->u[k < inside && part > 0.0 ? whole + k + 1 : 0][i];
            s->u[k][i] = k >= inside ? tail[i]
                         : part > 0.0 ? before + part * (after - before) : before;
        }
    }
}

#if CONTACTS
/* The first guess becomes states that stay at the start, on the contacts of each knot. */
static void guess_stance(pfx_mpc *m)
{
    pfx_numbers *const own = &m->solver.own;
    double still[NX], none[NV], tau[NV];
    int k;
    memset(still, 0, sizeof still);
    memset(none, 0, sizeof none);
    memcpy(still, own->start, NQ * sizeof *still);
    for (k = 0; k <= STEPS; ++k) memcpy(own->x[k], own->start, sizeof own->x[k]);
    for (k = 0; k < STEPS; ++k) {
        const double *const inputs = row_of(&m->solver, k) + INPUT_PLACE;
        if (k && memcmp(inputs, row_of(&m->solver, k - 1) + INPUT_PLACE, INPUTS * sizeof *inputs) == 0) {
            memcpy(own->u[k], own->u[k - 1], sizeof own->u[k]);
            continue;
        }
        inverse_forces(still, still + NQ, none, row_of(&m->solver, k), tau);
        stand_on(still, tau, inputs + ACTIVE_PLACE, own->u[k]);
    }
}

/* A plan without a roll-out: feet lift off and land, and what stood in the last plan may fall in this
 * one. From the last plan's states and controls, or from standing still. */
static int solve_from_states(pfx_mpc *m, const plan *last, double begin)
{
    pfx_solver *const s = &m->solver;
    if (last) {
        shift_into(m, last, begin);
        memcpy(s->own.x, s->x, sizeof s->own.x);
        memcpy(s->own.u, s->u, sizeof s->own.u);
    } else
        guess_stance(m);
    return solve_own(s, ITERATIONS > COLD ? ITERATIONS : COLD) != PFX_DIVERGED;
}
#else
/* The reference becomes a posture that is held by feedback, where every joint is driven. */
static void stay(pfx_mpc *m)
{
    pfx_solver *const s = &m->solver;
    double x[NX], u[NU];
    int k, i;
    memcpy(x, s->own.start, sizeof x);
    memset(s->gains, 0, sizeof s->gains);
#if ROBOT && DRIVEN
    {
        double M[NV][NV], column[NV], held[NU];
        int j;
        for (i = NQ; i < NX; ++i) x[i] = 0.0;
        crba__64(x, M[0]);
        for (j = 0; j < NV; ++j) {
            for (i = 0; i < NV; ++i) column[i] = M[i][j];
            controls_of(column, held);
            for (k = 0; k < STEPS; ++k)
                for (i = 0; i < NU; ++i) {
                    s->gains[k][i][state_columns[j]] = -(RATE * RATE) * held[i];
                    s->gains[k][i][state_columns[NV + j]] = -(2.0 * RATE) * held[i];
                }
        }
    }
#endif
    resting(m, x, u);
    for (k = 0; k <= STEPS; ++k) memcpy(s->x[k], x, sizeof x);
    for (k = 0; k < STEPS; ++k)
        for (i = 0; i < NU; ++i) s->u[k][i] = u[i];
}
#endif

/* Follows the reference by its gains from the start; the result becomes the reference. */
static int settle(pfx_solver *s)
{
    double J[WIDTH];
    simulate(s, 0, 0, in_all_lanes(0.0), J);
    s->J = J[0];
    take(s, 0);
    memset(s->gap, 0, sizeof s->gap);
    return isfinite(s->J);
}

/*LIMITS*/
/* The state at the end of the latency, under the plans that act until then. */
static void predict(pfx_mpc *m, const double *measured, double t, double *x)
{
    double now = t;
    memcpy(x, measured, NX * sizeof *x);
    while (t + LATENCY - now > ROUNDING) {
        const double left = t + LATENCY - now;
        const double h = left < PREDICTION_STEP ? left : PREDICTION_STEP;
        const plan *const p = acting_at(m, now);
        double u[NU], next[NX];
        memcpy(u, m->given, sizeof u);
        if (p->start > -INFINITY) {
            follow(m, p, now, x, u);
            clip(m, u, 1);
        }
        one_step(x, u, &h, row_asked(m, 0), next);
        memcpy(x, next, sizeof next);
        now += h;
    }
}

static int is_warm(pfx_mpc *m, double begin)
{
    const plan *const last = newest(m);
    return last->start > -INFINITY && begin < end_of(m, last) && m->failures < FAILURES;
}

static void hold_posture(pfx_mpc *m, const double *x)
{
    ++m->counts.held;
    if (!m->held) memcpy(m->held_at, x, sizeof m->held_at);
    m->held = 1;
}

/* Whether weights or steps are others than those of the last plan; what steers may change them. */
OWN int weights_changed(const pfx_mpc *m)
{
    int changed = m->seen_step != m->numbers.h[0], k, i;
    for (k = 0; k <= STEPS; ++k)
        for (i = 0; i < WEIGHTS; ++i)
            changed |= m->seen_weights[k][i]
                       != ((const double *)(const void *)&m->numbers.knot[k])[weight_places[i]];
    return changed;
}

static void see_weights(pfx_mpc *m)
{
    int k, i;
    m->seen_step = m->numbers.h[0];
    for (k = 0; k <= STEPS; ++k)
        for (i = 0; i < WEIGHTS; ++i)
            m->seen_weights[k][i]
                = ((const double *)(const void *)&m->numbers.knot[k])[weight_places[i]];
}

#if PHASES
/* Of the motion, steps that are over are left out, and its last step goes on for as many. */
static void pass_on(pfx_mpc *m, double begin)
{
    double passed;
    if (isnan(m->motion_begins)) m->motion_begins = begin;
    passed = (begin - m->motion_begins) / time_step(m) + 1e-6;
    m->passed = passed < 1.0 ? 0 : passed < (double)STEPS ? (int)passed : STEPS;
}
#endif

/* The numbers of a plan; beyond the end of a motion its targets are those of the end. */
static void place_numbers(pfx_mpc *m)
{
    pfx_solver *const s = &m->solver;
    memcpy(&s->own, &m->numbers, sizeof s->own);
#if PHASES
    {
        int k;
#if TARGETS
        const double *const end = (const double *)(const void *)&m->numbers.knot[STEPS];
        int i;
#endif
        for (k = 0; k < STEPS; ++k) {
            s->own.knot[k] = m->numbers.knot[knot_in_motion(m, k)];
#if TARGETS
            for (i = 0; i < TARGETS && k + m->passed >= STEPS; ++i)
                row_of(s, k)[target_places[i]] = end[target_places[i]];
#endif
#if BOUNDED
            memcpy(s->own.lower[k], m->numbers.lower[knot_in_motion(m, k)], sizeof s->own.lower[k]);
            memcpy(s->own.upper[k], m->numbers.upper[knot_in_motion(m, k)], sizeof s->own.upper[k]);
#endif
        }
    }
#endif
}

/* Goes on with iterations from a plan that was found in another way; whether its roll-out stays
 * finite. */
OWN int adopt(pfx_mpc *m)
{
    pfx_solver *const s = &m->solver;
    double J[WIDTH];
    s->negligible = s->sigma = 0.0;
    s->open = 0;
#if BOUNDED
    memset(s->active, 0, sizeof s->active);
#endif
#if CONSTRAINTS
    place_penalties(m);
#endif
    simulate(s, 0, 0, in_all_lanes(0.0), J);
    if (!isfinite(J[0])) return 0;
    s->J = J[0];
    take(s, 0);
    memset(s->gap, 0, sizeof s->gap);
    return 1;
}

/* Iterations while what steers does not accept the plan. */
static void improve(pfx_mpc *m, int iterated)
{
    pfx_solver *const s = &m->solver;
    int k;
    if (!m->accepts) return;
    s->deadline = s->clock ? m->counts.began + BUDGET : INFINITY;
    for (k = iterated ? 0 : FURTHER - COLD; k < FURTHER; ++k) {
        double before;
        if (m->accepts(m->steering, s->x[0], s->u[0])) return;
        if (is_late(s)) break;
        if (!iterated) {
            iterated = adopt(m);
            if (!iterated) break;
        }
#if CONSTRAINTS
        else
            settle(s); /* multipliers may be others now */
#endif
        before = s->J;
        descend(s, TOLERANCE, s->iterations + 1, 0);
        if (!(s->J < before)) break;
    }
    m->counts.slips += !m->accepts(m->steering, s->x[0], s->u[0]);
}

/* From what was rolled out, by iterations. */
static void iterate(pfx_mpc *m, int warm)
{
    pfx_solver *const s = &m->solver;
    const long most = warm || ITERATIONS > COLD ? ITERATIONS : COLD;
    const long allowed = BUDGET < INFINITY && s->clock ? 1000000 : most;
#if CONSTRAINTS
    alternate(m, allowed);
#else
    descend(s, TOLERANCE, allowed, 0);
#endif
}

/* The last plan, shifted, or without one a posture that is held, simulated from the start; whether
 * that stays finite. */
static int begin_iterations(pfx_mpc *m, const plan *last, double begin)
{
    pfx_solver *const s = &m->solver;
    if (last)
        shift_into(m, last, begin);
    else
#if CONTACTS
        return 0; /* from states that are held on the contacts */
#else
        stay(m);
#endif
    if (!settle(s)) return 0;
#if CONSTRAINTS
    if (!m->scaled) {
        scale_to_costs(m);
        if (!settle(s)) return 0;
    }
#endif
    return 1;
}

enum { FAILED, MADE, FALLEN };

/* What came of making a plan from a measured state. */
static int solve_from(pfx_mpc *m, const double *x, double t, int warm)
{
    pfx_solver *const s = &m->solver;
    const double begin = t + LATENCY;
    const plan *const last = warm ? newest(m) : NULL;
    double start[NX];
    plan *made;
    int iterated, spare;
#if CONSTRAINTS
    const int rescaled = weights_changed(m);
#endif
    forget(s);
#if PHASES
    pass_on(m, begin);
#endif
    predict(m, x, t, start);
    if (m->steer && !m->steer(m->steering, start, begin, &m->numbers)) return FALLEN;
    see_weights(m);
    place_numbers(m);
    memcpy(s->own.start, start, sizeof start);
#if BOUNDED && OBSERVER
    {
        int k, i;
        for (k = 0; k < STEPS; ++k)
            for (i = 0; i < NU; ++i) {
                s->own.lower[k][i] += m->cancel[i];
                s->own.upper[k][i] += m->cancel[i];
            }
    }
#endif
#if INTEGRAL
    {
        int k, i;
        for (k = 0; k <= STEPS; ++k)
            for (i = 0; i < 3; ++i) row_of(s, k)[TARGET_PLACE + i] += m->shift[i];
    }
#endif
    read_bounds(s);
#if CONSTRAINTS
    if (rescaled) rescale(m);
    fit(m, begin);
    place_multipliers(m, last, begin);
#endif
    s->negligible = 0.0;
    s->deadline = s->clock ? m->counts.began + BUDGET : INFINITY;
    iterated = begin_iterations(m, last, begin);
    if (iterated)
        iterate(m, warm);
    else
#if CONTACTS
        if (!solve_from_states(m, last, begin))
#endif
        return FAILED;
    improve(m, iterated);
    if (!isfinite(s->J) || !is_finite(s->x[0], (STEPS + 1) * (long)NX)
        || !is_finite(s->u[0], STEPS * (long)NU)
        || !is_finite(s->gains[0][0], STEPS * (long)NU * COLUMNS))
        return FAILED;
    spare = m->waiting < WAITING + 1 ? m->waiting + 1 : m->waiting; /* the last one makes room */
    made = &m->plans[m->order[spare]];
    made->start = begin;
    memcpy(made->x, s->x, sizeof made->x);
    memcpy(made->u, s->u, sizeof made->u);
    memcpy(made->gains, s->gains, sizeof made->gains);
    made->pace = 1.0;
    made->held = 0;
#if CONSTRAINTS
    keep_multipliers(m);
    judge(m, made);
#endif
    m->waiting = spare;
    return MADE;
}

/* There is no plan. */
static void clear_plans(pfx_mpc *m)
{
    int k;
    for (k = 0; k < WAITING + 2; ++k) m->plans[k].start = -INFINITY;
    m->waiting = 0;
}

static void make_plan(pfx_mpc *m, const double *x, double t)
{
    const int warm = is_warm(m, t + LATENCY);
    pfx_solver *const s = &m->solver;
    m->counts.began = s->clock ? s->clock(s->clock_context) : 0.0;
    ++m->counts.plans;
    switch (solve_from(m, x, t, warm)) {
    case MADE:
        m->counts.cold += !warm && m->began;
        m->failures = 0;
        if (newest(m)->held)
            hold_posture(m, x);
        else
            m->held = 0;
        break;
    case FALLEN: /* plans of a robot on its feet are none for one that lies */
        ++m->counts.fallen;
        clear_plans(m);
        m->failures = 0;
        hold_posture(m, x);
        break;
    default:
        ++m->failures;
        m->counts.kept += warm;
        if (!warm || t >= end_of(m, acting(m))) hold_posture(m, x);
    }
    m->began = 1;
    m->counts.iterations = s->iterations;
    m->counts.cost = s->J;
    if (s->clock) {
        m->counts.seconds = s->clock(s->clock_context) - m->counts.began;
        m->counts.late += m->counts.seconds > PERIOD;
    }
}

#if OBSERVER
/* Which joint forces, unknown to the model, explain how the robot moved (a low-pass). */
static void observe(pfx_mpc *m, const double *x, double t, const double *u)
{
    static const double most[NV] = MOST_FORCE;
    const double h = t - m->seen_at;
    int i;
    if (m->observed && h > 0.0 && h < 0.05) {
        const double part = 1.0 - exp(-BANDWIDTH * h);
        double a[NV], tau[NV];
        for (i = 0; i < NV; ++i) a[i] = (x[NQ + i] - m->seen[NQ + i]) / h;
        forces_of(m, m->seen, a, tau);
        for (i = 0; i < NV; ++i) tau[i] = tau[i] - m->acted[i] - m->force[i];
        if (is_finite(tau, NV))
            for (i = 0; i < NV; ++i) {
                double moved = m->force[i] + part * tau[i];
                moved = moved > -most[i] ? moved : -most[i];
                m->force[i] = moved < most[i] ? moved : most[i];
            }
        else
            memset(m->force, 0, sizeof m->force);
        controls_of(m->force, m->cancel);
    }
    m->observed = 1;
    m->seen_at = t;
    memcpy(m->seen, x, sizeof m->seen);
    for (i = 0; i < NV; ++i) {
#if ACTUATED
        int j;
        m->acted[i] = 0.0;
        for (j = 0; j < NU; ++j) m->acted[i] += actuation[i * NU + j] * u[j];
#else
        m->acted[i] = u[i];
#endif
    }
}
#endif

#if INTEGRAL
/* Moves the target until nothing lasting is left between it and the point that should be there. */
static void integrate(pfx_mpc *m, const double *x, double t)
{
    static const double offset[3] = TARGET_OFFSET;
    const double *const wanted = row_asked(m, 0) + TARGET_PLACE;
    const double h = t - m->integrated_at;
    double T[16], away[3], distance = 0.0, length = 0.0;
    int i, j;
    m->integrated_at = t;
    placement__64(x, T);
    for (i = 0; i < 3; ++i) {
        double turned = 0.0;
        for (j = 0; j < 3; ++j) turned += T[4 * i + j] * offset[j];
        away[i] = wanted[i] - T[4 * i + 3] - turned;
        distance += away[i] * away[i];
    }
    if (!(h < LONGEST_GAP && sqrt(distance) < NEAR_TARGET)) return;
    for (i = 0; i < 3; ++i) {
        m->shift[i] += INTEGRAL_RATE * h * away[i];
        length += m->shift[i] * m->shift[i];
    }
    length = sqrt(length);
    if (length > MOST_SHIFT)
        for (i = 0; i < 3; ++i) m->shift[i] *= MOST_SHIFT / length;
}
#endif

static void command(pfx_mpc *m, const double *x, double t, double *u)
{
    int tried, i;
    for (tried = 0; tried < 2; ++tried) {
        if (m->held)
            holding(m, x, u);
        else if (acting(m)->start > -INFINITY)
            follow(m, acting(m), t, x, u);
        else if (x)
            resting(m, x, u);
        else
            memcpy(u, m->numbers.u[0], NU * sizeof *u);
        for (i = 0; i < NU; ++i) u[i] -= cancelled(m, i);
        clip(m, u, 0);
        if (is_finite(u, NU)) return;
        ++m->counts.kept; /* once more without feedback, then what was given last */
        x = NULL;
    }
    memcpy(u, m->given, sizeof m->given);
    clip(m, u, 0);
}

size_t pfx_mpc_memory(void) { return sizeof(pfx_mpc) + 64; }

pfx_mpc *pfx_mpc_init(void *memory, size_t size)
{
    char *place = memory;
    pfx_mpc *m;
    if (!memory || size < pfx_mpc_memory()) return NULL;
    place += (64 - (uintptr_t)place % 64) % 64;
    m = (pfx_mpc *)(void *)place;
    memset(m, 0, sizeof *m);
    pfx_defaults(&m->numbers);
    pfx_mpc_reset(m);
    return m;
}

void pfx_mpc_reset(pfx_mpc *m)
{
    int k;
    for (k = 0; k < WAITING + 2; ++k) m->order[k] = k;
    clear_plans(m);
    m->failures = m->held = m->began = 0;
#if PHASES
    m->motion_begins = NAN;
    m->passed = 0;
#endif
    m->now = m->due = -INFINITY;
    memset(m->given, 0, sizeof m->given);
    memset(&m->counts, 0, sizeof m->counts);
#if CONSTRAINTS
    reset_limits(m);
#endif
#if INTEGRAL
    memset(m->shift, 0, sizeof m->shift);
    m->integrated_at = -INFINITY;
#endif
#if OBSERVER
    memset(m->force, 0, sizeof m->force);
    memset(m->cancel, 0, sizeof m->cancel);
    m->observed = 0;
#endif
}

pfx_numbers *pfx_mpc_numbers(pfx_mpc *m) { return &m->numbers; }

const pfx_counts *pfx_mpc_counts(const pfx_mpc *m) { return &m->counts; }

void pfx_mpc_set_clock(pfx_mpc *m, pfx_clock clock, void *context)
{
    pfx_set_clock(&m->solver, clock, context);
}

void pfx_mpc_step(pfx_mpc *m, const double *x, double t, double u[PFX_NU])
{
    int k;
    if (!(fabs(t) < HUGE_NUMBER)) { /* no time: the clock stands still */
        ++m->counts.clock;
        m->now = t = m->now > 0.0 ? m->now : 0.0;
    } else if (t < m->now) { /* a time that goes back takes all others with it */
        const double turned = t - m->now;
        ++m->counts.clock;
        m->due += turned;
        for (k = 0; k < WAITING + 2; ++k) m->plans[k].start += turned;
#if PHASES
        m->motion_begins += turned;
#endif
#if CONSTRAINTS
        m->fitted += turned;
#endif
#if INTEGRAL
        m->integrated_at += turned;
#endif
#if OBSERVER
        m->seen_at += turned;
#endif
    }
    m->now = t;
    if (x && !(largest(x, NX) < HUGE_NUMBER)) x = NULL;
    m->counts.missing += x == NULL;
    activate(m, t);
    if (x && t >= m->due - ROUNDING) {
        const int late = m->now - m->due > PERIOD || m->due == -INFINITY;
        m->due = late ? m->now + PERIOD : m->due + PERIOD;
        make_plan(m, x, t);
        activate(m, t);
    }
    command(m, x, t, u);
#if OBSERVER
    if (x) observe(m, x, t, u);
#endif
#if INTEGRAL
    if (x) integrate(m, x, t);
#endif
    memcpy(m->given, u, sizeof m->given);
}

const double *pfx_mpc_plan(pfx_mpc *m, double *start, const double **u)
{
    plan *const p = newest(m);
    *start = p->start;
    *u = p->u[0];
    return p->x[0];
}

void pfx_mpc_set_steering(pfx_mpc *m, pfx_steer steer, pfx_accepts accepts, void *context)
{
    m->steer = steer;
    m->accepts = accepts;
    m->steering = context;
}

#if CONTACTS
void pfx_mpc_forces(pfx_mpc *m, int k, const double *x, const double *u, double force[PFX_FORCES])
{
    contact_forces__64(x, u, row_of(&m->solver, k) + INPUT_PLACE, force);
}
#endif
