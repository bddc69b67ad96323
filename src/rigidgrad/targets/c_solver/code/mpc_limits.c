/* --- limits besides those of controls: what iterations and plans make of them --------------------- */

static const double tolerances[CONSTRAINTS] = TOLERANCES; /* violations up to these are none */

static double asked_lower(const pfx_mpc *m, int k, int i)
{
    return row_asked(m, k)[lower_places[i]];
}

static double asked_upper(const pfx_mpc *m, int k, int i)
{
    return row_asked(m, k)[upper_places[i]];
}

/* Penalties are scaled to the costs with the next plan. */
static void rescale(pfx_mpc *m)
{
    int i;
    m->scaled = m->waited = 0;
    for (i = 0; i < CONSTRAINTS; ++i) {
        m->growth[i] = 1.0;
        m->worst[i] = INFINITY;
    }
}

static void reset_limits(pfx_mpc *m)
{
    memset(m->multiplier, 0, sizeof m->multiplier);
    memset(m->margin, 0, sizeof m->margin);
    m->fitted = NAN;
    rescale(m);
}

/* Bounds of a plan that begins at a time. A start outside of one is no error: the bound begins there
 * and comes back to its place. All are drawn in by a margin, which grows with how far states were
 * outside, and fades. */
static void fit(pfx_mpc *m, double begin)
{
    pfx_solver *const s = &m->solver;
    const double passed = begin - m->fitted, elapsed = passed > 0.0 ? passed : 0.0;
    const double h = time_step(m), part = elapsed / MARGIN_GROWTH;
    double now[CONSTRAINTS], none[NU];
    int any = 0, away = 0, k, i;
    m->fitted = begin;
    memset(none, 0, sizeof none);
    constraint_values_of(s->own.start, none, row_asked(m, 0), now);
    for (i = 0; i < CONSTRAINTS; ++i) { /* bounds of the start itself are open: those of the next */
        const double under = asked_lower(m, 1, i) - now[i], over = now[i] - asked_upper(m, 1, i);
        const double far = under > over ? under : over;
        if (elapsed > 0.0) m->margin[i] *= exp(-elapsed / MARGIN_DECAY);
        m->outside[i] = controlled[i] || !(far > 0.0) ? 0.0 : far;
        away |= m->outside[i] != 0.0;
    }
    for (i = 0; i < CONSTRAINTS; ++i) {
        if (away) {
            const double range = MARGIN_PART * (asked_upper(m, 1, i) - asked_lower(m, 1, i));
            const double most = range < LARGEST_MARGIN ? range : LARGEST_MARGIN;
            m->margin[i] += m->outside[i] * (part < 1.0 ? part : 1.0);
            if (!(m->margin[i] < (most > 0.0 ? most : 0.0))) m->margin[i] = most > 0.0 ? most : 0.0;
        }
        any |= m->margin[i] != 0.0;
    }
    if (!any && !away) return;
    for (i = 0; i < CONSTRAINTS; ++i) {
        double under = asked_lower(m, 1, i) + m->margin[i] - now[i];
        double over = now[i] - asked_upper(m, 1, i) + m->margin[i], slow, fast;
        if (controlled[i] || !(under > 0.0)) under = 0.0;
        if (controlled[i] || !(over > 0.0)) over = 0.0;
        slow = under / (LONGEST_RECOVERY * STEPS * h);
        fast = over / (LONGEST_RECOVERY * STEPS * h);
        slow = slow > RECOVERY_RATE ? slow : RECOVERY_RATE;
        fast = fast > RECOVERY_RATE ? fast : RECOVERY_RATE;
        for (k = 0; k <= STEPS; ++k) {
            const double low = asked_lower(m, k, i), high = asked_upper(m, k, i);
            const double u = under - slow * (h * k), o = over - fast * (h * k);
            if (fabs(low) < FAR_BOUND)
                *number_of(s, k, lower_places, i) = low + (m->margin[i] - (u > 0.0 ? u : 0.0));
            if (fabs(high) < FAR_BOUND)
                *number_of(s, k, upper_places, i) = high - (m->margin[i] - (o > 0.0 ? o : 0.0));
        }
    }
}

static void set_rows(pfx_solver *s, const int *places, double (*rows)[CONSTRAINTS])
{
    int k, i;
    for (k = 0; k <= STEPS; ++k)
        for (i = 0; i < CONSTRAINTS; ++i) *number_of(s, k, places, i) = rows[k][i];
}

static void set_penalties(pfx_mpc *m)
{
    int k, i;
    for (k = 0; k <= STEPS; ++k)
        for (i = 0; i < CONSTRAINTS; ++i)
            *number_of(&m->solver, k, penalty_places, i) = m->penalty[k][i] * m->growth[i];
}

static void place_penalties(pfx_mpc *m)
{
    pfx_solver *const s = &m->solver;
    if (m->scaled) {
        set_penalties(m);
        set_rows(s, softness_places, m->softness);
    } else {
        set_all(s, penalty_places, FIRST_PENALTY);
        set_all(s, softness_places, SHARP);
    }
}

/* Multipliers and penalties of the last plan, shifted with it; none for a plan from cold. */
static void place_multipliers(pfx_mpc *m, const plan *last, double begin)
{
    pfx_solver *const s = &m->solver;
    int k, i;
    if (!last) {
        memset(m->multiplier, 0, sizeof m->multiplier);
        rescale(m);
    }
    set_rows(s, multiplier_places, m->multiplier);
    if (last) {
        double part;
        const int whole = knot_of(m, last, phase_of(last, begin), &part);
        for (k = 0; k <= STEPS; ++k)
            for (i = 0; i < CONSTRAINTS; ++i) {
                const double a = m->multiplier[k + whole < STEPS ? k + whole : STEPS][i];
                const double b = m->multiplier[k + whole < STEPS ? k + whole + 1 : STEPS][i];
                *number_of(s, k, multiplier_places, i) = a + part * (b - a);
            }
    }
    place_penalties(m);
}

/* With the first roll-out: penalties as the costs call for. */
static void scale_to_costs(pfx_mpc *m)
{
    pfx_solver *const s = &m->solver;
    int k, i;
    if (m->scaled) return;
    scale_penalty(s, PLAN_RATIO);
    measure_corners(s);
    soften(s, PLAN_WIDTH);
    for (k = 0; k <= STEPS; ++k)
        for (i = 0; i < CONSTRAINTS; ++i) {
            m->penalty[k][i] = *number_of(s, k, penalty_places, i);
            m->softness[k][i] = *number_of(s, k, softness_places, i);
        }
    m->scaled = 1;
}

/* Multipliers become the slopes of the penalties, and penalties grow where a violation did not fall
 * although the descent had settled; whether that changed anything that matters. */
static int renew(pfx_mpc *m, int settled)
{
    pfx_solver *const s = &m->solver;
    double moved = 0.0, most = 0.0;
    int grown = 0, k, i;
    stand(s, s->x, s->u);
    for (k = 0; k <= STEPS; ++k)
        for (i = 0; i < CONSTRAINTS; ++i) {
            double *const old = number_of(s, k, multiplier_places, i);
            const double found = s->outer.multiplier[k][i], away = found - *old;
            if (fabs(away) > moved) moved = fabs(away);
            if (fabs(found) > most) most = fabs(found);
            *old += RENEWED * away;
        }
    for (i = 0; i < CONSTRAINTS; ++i) {
        const double worst = s->outer.excess[i];
        if (settled && worst > tolerances[i] && worst > PLAN_FALL * m->worst[i]) {
            const double more = PLAN_GROW * m->growth[i];
            m->growth[i] = more < PLAN_MOST ? more : PLAN_MOST;
            grown = 1;
        }
        m->worst[i] = worst;
    }
    if (grown) set_penalties(m);
    return grown || moved > SAME * most;
}

/* Iterations, and a renewal of all multipliers whenever they have settled for those of now. */
static void alternate(pfx_mpc *m, long most)
{
    pfx_solver *const s = &m->solver;
    long done;
    int i;
    for (done = 1; done <= most; ++done) {
        const double before = s->J;
        const int converged = descend(s, TOLERANCE, done, 0) == PFX_CONVERGED;
        int settled = converged || before - s->J <= SETTLED * fabs(s->J), moved = 1;
        m->waited = settled ? 0 : m->waited + 1;
        if (settled || m->waited >= WAIT) {
            m->waited = 0;
            settled = 1;
            moved = renew(m, converged);
        }
        if (s->iterations < done || (converged && !moved) || is_late(s)) break;
        if (done < most && settled) settle(s);
    }
    for (i = 0; i < CONSTRAINTS; ++i)
        if (m->worst[i] <= tolerances[i])
            m->growth[i] = FADE * m->growth[i] > 1.0 ? FADE * m->growth[i] : 1.0;
}

/* The multipliers found belong to the plan that is followed from now on. */
static void keep_multipliers(pfx_mpc *m)
{
    int k, i;
    for (k = 0; k <= STEPS; ++k)
        for (i = 0; i < CONSTRAINTS; ++i)
            m->multiplier[k][i] = *number_of(&m->solver, k, multiplier_places, i);
}

/* Measures a plan against the limits that were asked for; where it leaves them, how it is followed. */
static void judge(pfx_mpc *m, plan *made)
{
    pfx_solver *const s = &m->solver;
    int violated = 0, first = STEPS + 1, k, i;
    measure(s, made->x, made->u);
    m->counts.violation = 0.0;
    for (k = 0; k <= STEPS; ++k)
        for (i = 0; i < CONSTRAINTS; ++i) {
            const double low = asked_lower(m, k, i), high = asked_upper(m, k, i);
            const double c = s->outer.c[k][i], under = low - c, over = c - high;
            double excess = under > over ? under : over;
            if (!(excess > 0.0) || (k == STEPS && controlled[i])) excess = 0.0;
            if (k == 0) excess = m->outside[i];
            if (excess > m->counts.violation) m->counts.violation = excess;
            violated |= excess > tolerances[i];
            if (low < high && excess > m->outside[i] + tolerances[i] && k < first) first = k;
        }
    m->counts.violated += violated;
    if (violated && first <= STEPS) {
        const double ahead = time_step(m) * first, all = AHEAD_PART * STEPS * time_step(m);
#if POLICY == 1
        made->pace = ahead / (AHEAD < all ? AHEAD : all);
        if (!(made->pace < 1.0)) made->pace = 1.0;
#elif POLICY == 2
        made->held = ahead <= BRAKING;
        (void)all;
#else
        (void)ahead;
        (void)all;
#endif
    }
}
