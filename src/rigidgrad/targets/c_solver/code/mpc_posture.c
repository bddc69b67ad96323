/* --- postures --- */

#if ROBOT
OWN void forces_of(const pfx_mpc *m, const double *x, const double *a, double *tau)
{
    inverse_forces(x, x + NQ, a, row_asked(m, 0), tau);
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

#if CONTACTS
/* Of the least controls and forces of active contacts that come nearest to joint forces, the controls:
 * by the singular values of the map from both, whose columns rotations make orthogonal to each other
 * (one-sided Jacobi). */
static void stand_on(const double *q, const double *tau, const double *active, double *u)
{
    static const int contact_of_row[ROWS] = CONTACT_OF_ROW;
    double W[NU + ROWS][NV], V[NV][NV], J[ROWS * NV], all = 0.0, most = 0.0;
    int i, j, r, sweep, turned = 1;
    contact_jacobian__64(q, J);
    for (j = 0; j < NV; ++j) {
#if ACTUATED
        for (i = 0; i < NU; ++i) W[i][j] = actuation[j * NU + i];
#else
        for (i = 0; i < NU; ++i) W[i][j] = i == j ? 1.0 : 0.0;
#endif
        for (r = 0; r < ROWS; ++r) W[NU + r][j] = J[r * NV + j] * active[contact_of_row[r]];
        for (i = 0; i < NV; ++i) V[i][j] = i == j ? 1.0 : 0.0;
        for (r = 0; r < NU + ROWS; ++r) all += W[r][j] * W[r][j];
    }
    for (sweep = 0; turned && sweep < 60; ++sweep)
        for (turned = i = 0; i < NV; ++i)
            for (j = i + 1; j < NV; ++j) {
                double a = 0.0, b = 0.0, both = 0.0, apart, t, c, s;
                for (r = 0; r < NU + ROWS; ++r) {
                    a += W[r][i] * W[r][i];
                    b += W[r][j] * W[r][j];
                    both += W[r][i] * W[r][j];
                }
                if (!(fabs(both) > 1e-15 * sqrt(a * b) && fabs(both) > 1e-30 * all)) continue;
                turned = 1;
                apart = b - a;
                t = 2.0 * both / (fabs(apart) + sqrt(apart * apart + 4.0 * both * both));
                if (apart < 0.0) t = -t;
                c = 1.0 / sqrt(t * t + 1.0);
                s = t * c;
                for (r = 0; r < NU + ROWS; ++r) {
                    const double x = W[r][i], y = W[r][j];
                    W[r][i] = c * x - s * y;
                    W[r][j] = s * x + c * y;
                }
                for (r = 0; r < NV; ++r) {
                    const double x = V[r][i], y = V[r][j];
                    V[r][i] = c * x - s * y;
                    V[r][j] = s * x + c * y;
                }
            }
    for (i = 0; i < NU; ++i) u[i] = 0.0;
    for (j = 0; j < NV; ++j) {
        double size = 0.0;
        for (r = 0; r < NU + ROWS; ++r) size += W[r][j] * W[r][j];
        if (size > most) most = size;
    }
    for (j = 0; j < NV; ++j) {
        double size = 0.0, part = 0.0;
        for (r = 0; r < NU + ROWS; ++r) size += W[r][j] * W[r][j];
        if (!(size > RANK * RANK * most)) continue;
        for (r = 0; r < NV; ++r) part += V[r][j] * tau[r];
        for (i = 0; i < NU; ++i) u[i] += W[i][j] * (part / size);
    }
}
#endif

/* The controls that come nearest to holding a posture under gravity; on contacts, all of which hold,
 * the least ones. */
static void resting(const pfx_mpc *m, const double *x, double *u)
{
    double tau[NV];
#if CONTACTS
    double active[CONTACTS];
    int i;
    (void)m;
    for (i = 0; i < CONTACTS; ++i) active[i] = 1.0;
    hold__64(x, tau);
    stand_on(x, tau, active, u);
#else
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
#endif
}

OWN int within(const pfx_mpc *m, const double *u)
{
    int i, inside = 1;
    for (i = 0; i < NU; ++i)
        inside &= u[i] >= low_of(m, i) + cancelled(m, i) && u[i] <= high_of(m, i) + cancelled(m, i);
    return inside;
}

/* Controls within bounds on the way from the first of the known ones that is within them to those
 * wanted, as far as that goes: all joints do the same part of their change. */
OWN void on_the_way(const pfx_mpc *m, double (*known)[NU], int count, double *u)
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
OWN void towards(const pfx_mpc *m, const double *x, const double *reference, const double *a,
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
OWN void coasting(const pfx_mpc *m, const double *x, double *u)
{
    double none[NV], tau[NV];
    memset(none, 0, sizeof none);
    forces_of(m, x, none, tau);
    controls_of(tau, u);
}

#if CONTACTS
/* Springs around the forces that stand there: whatever touches, a robot that stands stays standing,
 * and one that falls lies still. */
static void holding(const pfx_mpc *m, const double *x, double *u)
{
    double M[NV * NV], away[NDX], tau[NV], spring[NU];
    int i;
    resting(m, m->held_at, u);
    if (!x) return;
    crba__64(m->held_at, M);
    subtract(m->held_at, x, away);
    for (i = 0; i < NV; ++i)
        tau[i] = BRISK * M[i * NV + i] * (BRISK * away[i] - 2.0 * x[NQ + i]);
    controls_of(tau, spring);
    for (i = 0; i < NU; ++i) u[i] += spring[i];
}
#else
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
#endif

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
