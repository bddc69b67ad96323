/* --- postures --- */

#if ROBOT
static void forces_of(const pfx_mpc *m, const double *x, const double *a, double *tau)
{
    inverse_forces(x, x + NQ, a, (const double *)(const void *)&m->numbers.knot[0], tau);
}

/* The controls that come nearest to joint forces. */
static void controls_of(const double *tau, double *u)
{
    int i;
#if ACTUATED
    int j;
    for (i = 0; i < NU; ++i) {
        u[i] = 0.0;
        for (j = 0; j < NV; ++j) u[i] += actuation_inverse[i * NV + j] * tau[j];
    }
#else
    for (i = 0; i < NU; ++i) u[i] = tau[i];
#endif
}

/* The controls that come nearest to holding a posture under gravity. */
static void resting(const pfx_mpc *m, const double *x, double *u)
{
    double tau[NV];
#if INPUTS
    double still[NX], none[NV];
    memset(still, 0, sizeof still);
    memset(none, 0, sizeof none);
    memcpy(still, x, NQ * sizeof *x);
    forces_of(m, still, none, tau);
#else
    (void)m;
    hold__64(x, tau);
#endif
    controls_of(tau, u);
}

static int within(const pfx_mpc *m, const double *u)
{
    int i, inside = 1;
    for (i = 0; i < NU; ++i)
        inside &= u[i] >= low_of(m, i) + cancelled(m, i) && u[i] <= high_of(m, i) + cancelled(m, i);
    return inside;
}

/* Controls within bounds on the way from the first of the known ones that is within them to those
 * wanted, as far as that goes: all joints do the same part of their change. */
static void on_the_way(const pfx_mpc *m, double (*known)[NU], int count, double *u)
{
    int k, i;
    if (within(m, u)) return;
    for (k = 0; k < count; ++k) {
        double room = 1.0;
        if (!within(m, known[k])) continue;
        for (i = 0; i < NU; ++i) {
            const double step = u[i] - known[k][i];
            const double bound = (step > 0.0 ? high_of(m, i) : low_of(m, i)) + cancelled(m, i);
            const double part = step != 0.0 ? (bound - known[k][i]) / step : INFINITY;
            if (part < room) room = part;
        }
        for (i = 0; i < NU; ++i) u[i] = known[k][i] + room * (u[i] - known[k][i]);
        return;
    }
}

/* Inverse dynamics of a, corrected for being at x instead of a reference. */
static void towards(const pfx_mpc *m, const double *x, const double *reference, const double *a,
                    double rate, double *u)
{
    double away[NDX], wanted[NV], tau[NV];
    int i;
    subtract(reference, x, away);
    for (i = 0; i < NV; ++i)
        wanted[i] = a[i] + rate * rate * away[i] + 2.0 * rate * away[NV + i];
    forces_of(m, x, wanted, tau);
    controls_of(tau, u);
}

/* Controls under which a robot that is driven in every joint goes on as it moves now. */
static void coasting(const pfx_mpc *m, const double *x, double *u)
{
    double none[NV], tau[NV];
    memset(none, 0, sizeof none);
    forces_of(m, x, none, tau);
    controls_of(tau, u);
}

/* A critically damped spring to the posture that is held; joints share what actuators allow. */
static void holding(const pfx_mpc *m, const double *x, double *u)
{
    double still[NV], posture[NX], known[1][NU];
    if (!x) {
        resting(m, m->held_at, u);
        return;
    }
    memset(still, 0, sizeof still);
    memset(posture, 0, sizeof posture);
    memcpy(posture, m->held_at, NQ * sizeof *x);
    towards(m, x, posture, still, m->failures == 0 ? BRISK : RATE, u);
    coasting(m, x, known[0]);
    on_the_way(m, known, DRIVEN, u);
}

#if CONSTRAINTS && POLICY == 1
/* Along a plan's path at a part of its speed, by inverse dynamics and a stiff spring. */
static void slowed(const pfx_mpc *m, const plan *p, double t, const double *x, double *u)
{
    const double at = phase_of(p, t);
    double part, a[NV], reference[NX], known[2][NU];
    int k = knot_of(m, p, at, &part), i;
    if (k == STEPS) {
        k = STEPS - 1;
        part = 1.0;
    }
    between(p->x[k], p->x[k + 1], part, reference);
    for (i = 0; i < NV; ++i) {
        reference[NQ + i] *= p->pace;
        a[i] = p->pace * p->pace * ((p->x[k + 1][NQ + i] - p->x[k][NQ + i]) / time_step(m));
    }
    if (!x) x = reference;
    towards(m, x, reference, a, BRISK, u);
    coasting(m, x, known[0]);
    follow_plan(m, p, at, x, known[1]);
    on_the_way(m, known, 2, u);
}
#endif
#else
static void resting(const pfx_mpc *m, const double *x, double *u)
{
    int i;
    (void)m;
    (void)x;
    for (i = 0; i < NU; ++i) u[i] = 0.0;
}

static void holding(const pfx_mpc *m, const double *x, double *u) { resting(m, x, u); }
#endif
