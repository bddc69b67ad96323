/* --- the direct method: sequential quadratic programming over states and controls --------------- */

#define FIRST_MU 1e-2  /* the penalty of defects, as a share of the largest multiplier */
#define ELSEWHERE 1e-2 /* a roll-out whose cost differs by more than this share is another motion */
#define NO_DEFECT 1e-13 /* of the states: defects that are none */
#define WORTH 1e-2      /* defects left by a step are closed if they weigh more than this share */
#define SETS 6          /* active sets tried in a row */
#define INTERIOR 40     /* iterations of the interior point method */
#define BACK 0.995      /* how much of the way to the boundary a step may go */
#define DONE 1e-10      /* complementarity, relatively to the first */
#define ACCURACY 1e-9   /* of du, relatively */

enum { SOLVED, LIMIT, INDEFINITE };

/* --- trajectories --- */

/* J with penalties, and the defects. */
static void measure_trajectory(pfx_solver *s, trajectory *t)
{
    int k;
    t->J = cost_with_penalties(s, t->x, t->u);
    subtract(s->own.start, t->x[0], t->d[0]);
    for (k = 0; k < STEPS; ++k) subtract(s->next[k], t->x[k + 1], t->d[k + 1]);
}

/* Takes stock of where it is now; whether that is finite. */
static int measure_all(pfx_solver *s)
{
    trajectory *const t = &s->direct.chosen;
    memcpy(t->x, s->x, sizeof t->x);
    memcpy(t->u, s->u, sizeof t->u);
    measure_trajectory(s, t);
    memcpy(s->direct.lq.d, t->d, sizeof t->d);
    s->J = t->J;
    return isfinite(s->J) && is_finite(t->d[0], (STEPS + 1) * (long)NDX);
}

/* Where a step leads, with controls within their bounds. */
static void try_step(pfx_solver *s, double (*dx)[NDX], double (*du)[NU], trajectory *t)
{
    int k, i;
    for (k = 0; k <= STEPS; ++k) {
#if FLAT
        for (i = 0; i < NX; ++i) t->x[k][i] = s->x[k][i] + dx[k][i];
#else
        plus__64(s->x[k], dx[k], t->x[k]);
#endif
    }
    for (k = 0; k < STEPS; ++k)
        for (i = 0; i < NU; ++i) {
            t->u[k][i] = s->u[k][i] + du[k][i];
#if BOUNDED
            if (t->u[k][i] < s->own.lower[k][i]) t->u[k][i] = s->own.lower[k][i];
            if (t->u[k][i] > s->own.upper[k][i]) t->u[k][i] = s->own.upper[k][i];
#endif
        }
    measure_trajectory(s, t);
}

/* --- the LQ problem --- */

static void linearize(pfx_solver *s)
{
    lq_problem *const q = &s->direct.lq;
    double next[NX], cost;
    int k;
    for (k = 0; k < STEPS; ++k)
        linearization__64(s->x[k], s->u[k], &s->own.h[k], row_of(s, k), next, q->A[k][0], q->B[k][0],
                          &cost, q->q[k], q->r[k], q->Q[k][0], q->S[k][0], q->R[k][0]);
    final_linearization__64(s->x[STEPS], row_of(s, STEPS), &cost, q->q[STEPS], q->Q[STEPS][0]);
#if !FLAT
    {
        /* from the tangent space at f(x_k, u_k) to that at x_(k+1), a defect away */
        static const int first[] = BLOCK_FIRST, size[] = BLOCK_SIZE;
        int b, i, j, l;
        if (largest(q->d[1], STEPS * (long)NDX) == 0.0) return;
        for (k = 0; k < STEPS; ++k) {
            double back[NV], T[TRANSPORT], A[NDX][NDX], B[NDX][NU];
            const double *block = T;
            for (i = 0; i < NV; ++i) back[i] = -q->d[k + 1][i];
            transport__64(back, T);
            memcpy(A, q->A[k], sizeof A);
            memcpy(B, q->B[k], sizeof B);
            for (b = 0; b < BLOCKS; block += size[b] * size[b], ++b)
                for (i = 0; i < size[b]; ++i) {
                    for (j = 0; j < NDX; ++j) {
                        double sum = 0.0;
                        for (l = 0; l < size[b]; ++l) sum += block[i * size[b] + l] * A[first[b] + l][j];
                        q->A[k][first[b] + i][j] = sum;
                    }
                    for (j = 0; j < NU; ++j) {
                        double sum = 0.0;
                        for (l = 0; l < size[b]; ++l) sum += block[i * size[b] + l] * B[first[b] + l][j];
                        q->B[k][first[b] + i][j] = sum;
                    }
                }
        }
    }
#endif
}

static void substitute_forward(pfx_solver *s)
{
    recursion *const r = &s->direct.solved;
    int k, i, j;
    for (i = 0; i < NDX; ++i) {
        double sum = 0.0;
        for (j = 0; j < NDX; ++j) sum += r->V[0][i * NDX + j] * r->d[0][j];
        r->dx[0][i] = r->d[0][i];
        r->lam[0][i] = sum + r->V[0][NDX * NDX + i];
    }
    for (k = 0; k < STEPS; ++k)
        lq_forward__64(r->F[k], r->d[k + 1], r->gains[k], r->dx[k], r->V[k + 1], r->du[k],
                       r->dx[k + 1], r->lam[k + 1], s->direct.work);
}

/* Solves what F, L, l, d and the end of V are. */
static int solve_recursion(pfx_solver *s)
{
    static const double none = 0.0;
    recursion *const r = &s->direct.solved;
    double results[3] = {0.0, 0.0, 1.0};
    int k;
    for (k = STEPS - 1; k >= 0; --k)
        lq_backward__64(r->F[k], r->l[k], r->L[k], r->d[k + 1], &none, r->V[k + 1], results,
                        r->gains[k], r->V[k], r->factor[k], s->direct.work);
    if (!(results[2] != 0.0)) return INDEFINITE;
    substitute_forward(s);
    return is_finite(r->dx[0], (STEPS + 1) * (long)NDX) && is_finite(r->du[0], STEPS * (long)NU)
                   && is_finite(r->lam[0], (STEPS + 1) * (long)NDX)
               ? SOLVED
               : INDEFINITE;
}

/* The least step that closes defects, by the problem solved last. */
static void close_defects(pfx_solver *s, double (*left)[NDX])
{
    recursion *const r = &s->direct.solved;
    int k;
    memset(r->l, 0, sizeof r->l);
    memcpy(r->d, left, sizeof r->d);
    memset(r->V[STEPS] + NDX * NDX, 0, NDX * sizeof(double));
    for (k = STEPS - 1; k >= 0; --k)
        lq_again__64(r->F[k], r->l[k], r->d[k + 1], r->V[k + 1], r->factor[k], r->V[k], r->gains[k],
                     s->direct.work);
    substitute_forward(s);
}

/* The LQ problem with rho added to its Hessians. */
static void place_problem(pfx_solver *s, double rho)
{
    enum { ALL = NDX + NU };
    const lq_problem *const q = &s->direct.lq;
    recursion *const r = &s->direct.solved;
    int k, i, j;
    for (k = 0; k < STEPS; ++k) {
        memset(r->L[k], 0, sizeof r->L[k]);
        for (i = 0; i < NDX; ++i) {
            for (j = 0; j < NDX; ++j) {
                r->F[k][i * ALL + j] = q->A[k][i][j];
                r->L[k][i * ALL + j] = q->Q[k][i][j] + (i == j ? rho : 0.0);
            }
            for (j = 0; j < NU; ++j) r->F[k][i * ALL + NDX + j] = q->B[k][i][j];
            r->l[k][i] = q->q[k][i];
        }
        for (i = 0; i < NU; ++i) {
            for (j = 0; j < NDX; ++j) r->L[k][(NDX + i) * ALL + j] = q->S[k][i][j];
            for (j = 0; j < NU; ++j)
                r->L[k][(NDX + i) * ALL + NDX + j] = q->R[k][i][j] + (i == j ? rho : 0.0);
            r->l[k][NDX + i] = q->r[k][i];
        }
    }
    memcpy(r->d, q->d, sizeof r->d);
    for (i = 0; i < NDX; ++i)
        for (j = 0; j < NDX; ++j)
            r->V[STEPS][i * NDX + j] = q->Q[STEPS][i][j] + (i == j ? rho : 0.0);
    memcpy(r->V[STEPS] + NDX * NDX, q->q[STEPS], NDX * sizeof(double));
}

static void take_solution(pfx_solver *s)
{
    direct_loop *const o = &s->direct;
    memcpy(o->dx, o->solved.dx, sizeof o->dx);
    memcpy(o->du, o->solved.du, sizeof o->du);
    memcpy(o->lam, o->solved.lam, sizeof o->lam);
}

#if BOUNDED
/* --- bounds of controls, by LQ problems without --- */

/* With the controls `which` held at `fixed`, `weight` added to the diagonals of R and `push` to r, if
 * these are given. The step, and into gu the gradient of the Lagrangian by controls there, of the
 * problem without weight and push. */
static int solve_trial(pfx_solver *s, double rho, int weighed)
{
    enum { ALL = NDX + NU };
    direct_loop *const o = &s->direct;
    recursion *const r = &o->solved;
    double scale = 1e-300;
    int any = 0, status, k, i, j;
    place_problem(s, rho);
    for (k = 0; k < STEPS; ++k)
        for (i = 0; i < NU; ++i) {
            double *const own = &r->L[k][(NDX + i) * ALL + NDX + i];
            if (weighed) {
                *own += o->weight[k][i];
                r->l[k][NDX + i] += o->push[k][i];
            }
            if (fabs(*own) > scale) scale = fabs(*own);
            any |= o->which[k][i];
        }
    for (k = 0; any && k < STEPS; ++k) {
        double forced[NU];
        for (i = 0; i < NU; ++i) {
            forced[i] = r->l[k][NDX + i];
            for (j = 0; j < NU; ++j)
                if (o->which[k][j]) forced[i] += r->L[k][(NDX + i) * ALL + NDX + j] * o->fixed[k][j];
        }
        for (i = 0; i < NDX; ++i)
            for (j = 0; j < NU; ++j)
                if (o->which[k][j]) {
                    r->d[k + 1][i] += r->F[k][i * ALL + NDX + j] * o->fixed[k][j];
                    r->l[k][i] += r->L[k][(NDX + j) * ALL + i] * o->fixed[k][j];
                    r->F[k][i * ALL + NDX + j] = 0.0;
                }
        for (i = 0; i < NU; ++i) {
            r->l[k][NDX + i] = o->which[k][i] ? 0.0 : forced[i];
            for (j = 0; o->which[k][i] && j < NDX; ++j) r->L[k][(NDX + i) * ALL + j] = 0.0;
            for (j = 0; j < NU; ++j)
                if (o->which[k][i] || o->which[k][j])
                    r->L[k][(NDX + i) * ALL + NDX + j] = i == j ? scale : 0.0;
        }
    }
    status = solve_recursion(s);
    take_solution(s);
    for (k = 0; k < STEPS; ++k)
        for (i = 0; i < NU; ++i)
            if (o->which[k][i]) o->du[k][i] = o->fixed[k][i];
    for (k = 0; k < STEPS; ++k)
        for (i = 0; i < NU; ++i) {
            double sum = o->lq.r[k][i] + rho * o->du[k][i];
            for (j = 0; j < NU; ++j) sum += o->lq.R[k][i][j] * o->du[k][j];
            for (j = 0; j < NDX; ++j)
                sum += o->lq.S[k][i][j] * o->dx[k][j] + o->lq.B[k][j][i] * o->lam[k + 1][j];
            o->gu[k][i] = status == INDEFINITE ? 0.0 : sum;
        }
    return status;
}

static double diagonal_of(const pfx_solver *s, int k, int i, double rho)
{
    const double found = s->direct.lq.R[k][i][i] + rho;
    return found > 1e-300 ? found : 1e-300;
}

/* A primal-dual active set: controls are held at the bounds that the last solution pushed them
 * across. Whether the step confirms what was held. */
static int try_sets(pfx_solver *s, double rho, int *status)
{
    direct_loop *const o = &s->direct;
    int round, k, i;
    for (round = 0; round < SETS; ++round) {
        int same = 1;
        for (k = 0; k < STEPS; ++k)
            for (i = 0; i < NU; ++i) {
                const double held = o->held[k][i];
                o->which[k][i] = o->same[k][i] || held != 0.0;
                o->fixed[k][i] = held > 0.0   ? o->upper[k][i]
                                 : held < 0.0 ? o->lower[k][i] : o->values[k][i];
            }
        *status = solve_trial(s, rho, 0);
        if (*status == INDEFINITE) return 0;
        for (k = 0; k < STEPS; ++k)
            for (i = 0; i < NU; ++i) {
                const double du = o->du[k][i], size = fabs(du) > 1.0 ? fabs(du) : 1.0;
                const double push = du - o->gu[k][i] / diagonal_of(s, k, i, rho);
                o->after[k][i] = push > o->upper[k][i] + ACCURACY * size   ? 1.0
                                 : push < o->lower[k][i] - ACCURACY * size ? -1.0 : 0.0;
                same &= o->after[k][i] == o->held[k][i];
            }
        if (same) return 1;
        memcpy(o->held, o->after, sizeof o->held);
    }
    return 0;
}

/* Near zero and away from bounds. */
static double inside(double lower, double upper)
{
    const int below = isfinite(lower), above = isfinite(upper);
    const double one = fabs(below ? lower : above ? upper : 0.0);
    const double margin = 0.1 * (below && above ? upper - lower : one > 1.0 ? one : 1.0);
    double found = 0.0 > lower + margin ? 0.0 : lower + margin;
    if (!(found < upper - margin)) found = upper - margin;
    return found;
}

/* Of a positive value that changes, the longest step that keeps it so. */
static double longest(double length, double value, double change)
{
    const double found = change < 0.0 ? -value / change : INFINITY;
    return found < length ? found : length;
}

/* A primal-dual interior point method: into `held` which bounds its step nears; the status. */
static int try_inside(pfx_solver *s, double rho)
{
    direct_loop *const o = &s->direct;
    double z = 0.0, first = 0.0, centring = 0.1, all = 0.0;
    int status = LIMIT, round, k, i;
    for (k = 0; k < STEPS; ++k)
        for (i = 0; i < NU; ++i) {
            o->inside_du[k][i] = o->same[k][i] ? o->values[k][i] : inside(o->lower[k][i], o->upper[k][i]);
            o->which[k][i] = 1;
            o->fixed[k][i] = o->inside_du[k][i];
        }
    solve_trial(s, rho, 0);
    for (k = 0; k < STEPS; ++k)
        for (i = 0; i < NU; ++i) z += o->same[k][i] ? 0.0 : fabs(o->gu[k][i]);
    z /= STEPS * (double)NU;
    if (!(z != 0.0)) z = 1.0;
    for (k = 0; k < STEPS; ++k)
        for (i = 0; i < NU; ++i) {
            o->z_low[k][i] = isfinite(o->lower[k][i]) ? z : 0.0;
            o->z_up[k][i] = isfinite(o->upper[k][i]) ? z : 0.0;
            all += isfinite(o->lower[k][i]) + isfinite(o->upper[k][i]);
            o->which[k][i] = o->same[k][i];
            o->fixed[k][i] = o->values[k][i];
        }
    memcpy(o->inside_dx, o->dx, sizeof o->inside_dx);
    for (round = 0; round < INTERIOR; ++round) {
        double mu = 0.0, length = INFINITY;
        for (k = 0; k < STEPS; ++k)
            for (i = 0; i < NU; ++i) {
                const double du = o->inside_du[k][i];
                if (isfinite(o->lower[k][i])) mu += o->z_low[k][i] * (du - o->lower[k][i]);
                if (isfinite(o->upper[k][i])) mu += o->z_up[k][i] * (o->upper[k][i] - du);
            }
        mu /= all;
        if (first == 0.0) first = mu;
        if (!(mu > DONE * first)) {
            status = SOLVED;
            break;
        }
        for (k = 0; k < STEPS; ++k)
            for (i = 0; i < NU; ++i) {
                const double du = o->inside_du[k][i];
                const int below = isfinite(o->lower[k][i]), above = isfinite(o->upper[k][i]);
                const double low = below ? du - o->lower[k][i] : 1.0;
                const double up = above ? o->upper[k][i] - du : 1.0;
                o->weight[k][i] = o->z_low[k][i] / low + o->z_up[k][i] / up;
                o->push[k][i] = centring * mu * (above / up - below / low) - o->weight[k][i] * du;
            }
        if (solve_trial(s, rho, 1) == INDEFINITE) break;
        for (k = 0; k < STEPS; ++k)
            for (i = 0; i < NU; ++i) {
                const double du = o->inside_du[k][i], move = o->du[k][i] - du;
                if (isfinite(o->lower[k][i])) {
                    const double slack = du - o->lower[k][i], at = o->z_low[k][i];
                    length = longest(length, slack, move);
                    length = longest(length, at, (centring * mu - at * move) / slack - at);
                }
                if (isfinite(o->upper[k][i])) {
                    const double slack = o->upper[k][i] - du, at = o->z_up[k][i];
                    length = longest(length, slack, -move);
                    length = longest(length, at, (centring * mu + at * move) / slack - at);
                }
            }
        length = BACK * length < 1.0 ? BACK * length : 1.0;
        for (k = 0; k < STEPS; ++k)
            for (i = 0; i < NU; ++i) {
                const double du = o->inside_du[k][i], move = o->du[k][i] - du;
                if (isfinite(o->lower[k][i])) {
                    const double slack = du - o->lower[k][i], at = o->z_low[k][i];
                    o->z_low[k][i] += length * ((centring * mu - at * move) / slack - at);
                }
                if (isfinite(o->upper[k][i])) {
                    const double slack = o->upper[k][i] - du, at = o->z_up[k][i];
                    o->z_up[k][i] += length * ((centring * mu + at * move) / slack - at);
                }
                o->inside_du[k][i] += length * move;
            }
        for (k = 0; k <= STEPS; ++k)
            for (i = 0; i < NDX; ++i)
                o->inside_dx[k][i] += length * (o->dx[k][i] - o->inside_dx[k][i]);
        centring = length > 0.9 ? 0.01 : length > 0.5 ? 0.1 : 0.5;
    }
    for (k = 0; k < STEPS; ++k)
        for (i = 0; i < NU; ++i) {
            const double scale = diagonal_of(s, k, i, rho), du = o->inside_du[k][i];
            const int low = isfinite(o->lower[k][i]) && o->z_low[k][i] / scale > du - o->lower[k][i];
            const int up = isfinite(o->upper[k][i]) && o->z_up[k][i] / scale > o->upper[k][i] - du;
            o->held[k][i] = up ? 1.0 : low ? -1.0 : 0.0;
        }
    return status;
}

/* The step within the bounds of controls. */
static int solve_within(pfx_solver *s, double rho)
{
    direct_loop *const o = &s->direct;
    int status, settled, k, i, any = 0;
    for (k = 0; k < STEPS; ++k)
        for (i = 0; i < NU; ++i) {
            const double low = s->own.lower[k][i] - s->u[k][i], high = s->own.upper[k][i] - s->u[k][i];
            const double size = fabs(high) > 1.0 ? fabs(high) : 1.0;
            const int same = isfinite(low) && isfinite(high) && high - low <= 1e-12 * size;
            any |= isfinite(low) || isfinite(high);
            o->same[k][i] = same;
            o->values[k][i] = same ? low : 0.0;
            o->lower[k][i] = same ? -INFINITY : low;
            o->upper[k][i] = same ? INFINITY : high;
        }
    if (!any) {
        place_problem(s, rho);
        status = solve_recursion(s);
        take_solution(s);
        return status;
    }
    for (k = 0; k < STEPS; ++k)
        for (i = 0; i < NU; ++i)
            if (!isfinite(o->held[k][i] > 0.0 ? o->upper[k][i] : o->lower[k][i])) o->held[k][i] = 0.0;
    settled = try_sets(s, rho, &status);
    if (settled || status == INDEFINITE) return status;
    {
        const int inner = try_inside(s, rho);
        double guess[STEPS][NU], lam[STEPS + 1][NDX];
        memcpy(guess, o->held, sizeof guess);
        memcpy(lam, o->lam, sizeof lam);
        if (try_sets(s, rho, &status)) return status;
        memcpy(o->held, guess, sizeof guess);
        memcpy(o->du, o->inside_du, sizeof o->du);
        memcpy(o->dx, o->inside_dx, sizeof o->dx);
        memcpy(o->lam, lam, sizeof lam);
        return inner;
    }
}
#endif

static int solve_step(pfx_solver *s, double rho)
{
#if BOUNDED
    return solve_within(s, rho);
#else
    int status;
    place_problem(s, rho);
    status = solve_recursion(s);
    take_solution(s);
    return status;
#endif
}

/* --- the step size --- */

/* The fall of J and the penalty of defects that the LQ problem expects of the whole step. */
static double expect(pfx_solver *s)
{
    direct_loop *const o = &s->direct;
    const lq_problem *const q = &o->lq;
    double curve = 0.0, left = 0.0, first;
    int k, i, j;
    o->slope = 0.0;
    for (k = 0; k <= STEPS; ++k)
        for (i = 0; i < NDX; ++i) {
            double bend = 0.0, rest = q->d[k][i] - o->dx[k][i];
            for (j = 0; j < NDX; ++j) bend += q->Q[k][i][j] * o->dx[k][j];
            for (j = 0; k < STEPS && j < NU; ++j) bend += q->S[k][j][i] * o->du[k][j];
            for (j = 0; k && j < NDX; ++j) rest += q->A[k - 1][i][j] * o->dx[k - 1][j];
            for (j = 0; k && j < NU; ++j) rest += q->B[k - 1][i][j] * o->du[k - 1][j];
            o->slope += q->q[k][i] * o->dx[k][i];
            curve += bend * o->dx[k][i];
            left += fabs(rest);
        }
    for (k = 0; k < STEPS; ++k)
        for (i = 0; i < NU; ++i) {
            double bend = 0.0;
            for (j = 0; j < NU; ++j) bend += q->R[k][i][j] * o->du[k][j];
            for (j = 0; j < NDX; ++j) bend += q->S[k][i][j] * o->dx[k][j];
            o->slope += q->r[k][i] * o->du[k][i];
            curve += bend * o->du[k][i];
        }
    o->closing = total_size(q->d[0], (STEPS + 1) * (long)NDX) - left;
    first = FIRST_MU * largest(o->lam[0], (STEPS + 1) * (long)NDX);
    if (o->mu == 0.0 || (0.0 < FORGOTTEN * first && FORGOTTEN * first < o->mu)) o->mu = first;
    if (o->closing > NO_DEFECT * total_size(s->x[0], (STEPS + 1) * (long)NX))
        o->mu = policy_penalty(o->mu, o->closing, o->slope, curve);
    return -(o->slope + 0.5 * curve) + o->mu * o->closing;
}

/* The merit of what was tried with a step size, and whether it falls as it should. */
static double judge_trial(const pfx_solver *s, const trajectory *t, double alpha, double *fine)
{
    const direct_loop *const o = &s->direct;
    const double merit = t->J + o->mu * total_size(t->d[0], (STEPS + 1) * (long)NDX);
    const double now = s->J + o->mu * total_size(o->lq.d[0], (STEPS + 1) * (long)NDX);
    *fine = policy_acceptable(
        now - merit, alpha * (o->mu * o->closing - o->slope), ACCEPT_LOW, ACCEPT_HIGH);
    return merit;
}

/* Looks at all step sizes and takes one, or -1. */
static int search_direct(pfx_solver *s)
{
    direct_loop *const o = &s->direct;
    double fine[SIZES], merits[SIZES], best = INFINITY;
    int found, upto, a, k, i;
    for (a = 0; a < SIZES; ++a) {
        for (k = 0; k <= STEPS; ++k)
            for (i = 0; i < NDX; ++i) o->moved[k][i] = step_sizes[a] * o->dx[k][i];
        for (k = 0; k < STEPS; ++k)
            for (i = 0; i < NU; ++i) o->pushed[k][i] = step_sizes[a] * o->du[k][i];
        try_step(s, o->moved, o->pushed, &o->tried[a]);
        merits[a] = judge_trial(s, &o->tried[a], step_sizes[a], &fine[a]);
    }
    found = choose(fine, merits, SIZES);
    if (found >= 0) {
        best = merits[found];
        o->chosen = o->tried[found];
    }
    upto = found < 0 ? SIZES : found + 1;
    for (a = 0; a < upto; ++a) { /* defects that are left are closed where they weigh much */
        const double alpha = step_sizes[a];
        double merit, good, sum;
        for (k = 0; k <= STEPS; ++k)
            for (i = 0; i < NDX; ++i)
                o->moved[k][i] = o->tried[a].d[k][i] - (1.0 - alpha) * o->lq.d[k][i];
        sum = total_size(o->moved[0], (STEPS + 1) * (long)NDX);
        if (!(o->mu * sum > WORTH * alpha * fabs(o->slope - o->mu * o->closing))) continue;
        close_defects(s, o->moved);
        for (k = 0; k <= STEPS; ++k)
            for (i = 0; i < NDX; ++i) o->moved[k][i] = alpha * o->dx[k][i] + o->solved.dx[k][i];
        for (k = 0; k < STEPS; ++k)
            for (i = 0; i < NU; ++i) o->pushed[k][i] = alpha * o->du[k][i] + o->solved.du[k][i];
        try_step(s, o->moved, o->pushed, &o->tried[SIZES]);
        merit = judge_trial(s, &o->tried[SIZES], alpha, &good);
        if (good > 0.0 && merit < best) {
            found = a;
            best = merit;
            o->chosen = o->tried[SIZES];
        } else if (good > 0.0)
            break;
        if (good > 0.0 && CHOOSE == 0) break;
    }
    if (found < 0) return -1;
    memcpy(s->x, o->chosen.x, sizeof s->x);
    memcpy(s->u, o->chosen.u, sizeof s->u);
    memcpy(o->lq.d, o->chosen.d, sizeof o->lq.d);
    s->J = o->chosen.J;
    return found;
}

/* --- a descent --- */

static int descend_directly(pfx_solver *s, double tolerance, long most)
{
    static const int judged[] = {
        RUNNING, PFX_CONVERGED, PFX_STALLED, PFX_SLOW, PFX_SINGULAR};
    double rho = 0.0;
    while (s->iterations < most) {
        double least = 0.0, refused = 0.0;
        int chosen = -1;
        ++s->iterations;
        linearize(s);
        while (chosen < 0) {
            const double low = RHO_LOW, high = RHO_HIGH, part = tolerance * fabs(s->J);
            const int status = solve_step(s, rho);
            const double expected = status == INDEFINITE ? NAN : expect(s);
            const int measured = status == SOLVED && rho <= least;
            const int small = status == SOLVED
                              && fabs(expected) <= (s->negligible > part ? s->negligible : part);
            double taken, definite, little = small, said[4];
            if (measured) s->expected = rho <= low ? fabs(expected) : INFINITY;
            if (expected > 0.0 && (!small || CONSTRAINTS != 0) && (measured || !small))
                chosen = search_direct(s);
            taken = chosen >= 0;
            definite = status != INDEFINITE;
            judged_direct__64(&taken, &definite, &little, &rho, &low, &high, &least, &refused, said);
            rho = said[1];
            least = said[2];
            refused = said[3];
            if (said[0] != 0.0) return judged[(int)said[0]];
        }
    }
    return PFX_ITERATIONS;
}

/* --- a solve --- */

/* Gains by a backward pass, and with them the trajectory without defects. */
static void follow_dynamics(pfx_solver *s)
{
    double slope, curve, rho = 0.0;
    expand(s);
    for (;;) {
        pass_back(s, rho, &slope, &curve);
        if (s->results[2] == 1.0) break;
        rho = 10.0 * rho > 1e-9 ? 10.0 * rho : 1e-9;
        if (rho > RHO_HIGH) {
            memset(s->gains, 0, sizeof s->gains);
            break;
        }
    }
    roll_out(s);
}

/* Simulates the first guess, or takes states as they are given; whether all is finite. */
static int begin_directly(pfx_solver *s)
{
    direct_loop *const o = &s->direct;
    int k;
#if BOUNDED
    int i;
    memset(o->held, 0, sizeof o->held);
#endif
    o->mu = 0.0;
    memset(o->lam, 0, sizeof o->lam);
    read_bounds(s);
    memset(s->gap, 0, sizeof s->gap);
    memset(s->gains, 0, sizeof s->gains);
    memcpy(s->u, s->own.u, sizeof s->u);
#if BOUNDED
    for (k = 0; k < STEPS; ++k)
        for (i = 0; i < NU; ++i) {
            if (s->u[k][i] < s->own.lower[k][i]) s->u[k][i] = s->own.lower[k][i];
            if (s->u[k][i] > s->own.upper[k][i]) s->u[k][i] = s->own.upper[k][i];
        }
#endif
#if GAPS
    memcpy(s->x, s->own.x, sizeof s->x);
#else
    memcpy(o->first.u, s->u, sizeof o->first.u);
    for (k = 0; k <= STEPS; ++k) memcpy(s->x[k], s->own.start, sizeof s->x[k]);
    roll_out(s);
    memcpy(s->u, o->first.u, sizeof s->u);
    if (!is_finite(s->x[0], (STEPS + 1) * (long)NX))
        for (k = 0; k <= STEPS; ++k) memcpy(s->x[k], s->own.start, sizeof s->x[k]);
#endif
    memcpy(o->first.x, s->x, sizeof o->first.x);
    memcpy(o->first.u, s->u, sizeof o->first.u);
    k = measure_all(s);
    o->began = total_size(o->lq.d[0], (STEPS + 1) * (long)NDX);
    return k;
}

#if CONSTRAINTS
/* Defects that are left go into a roll-out, by which constraints are judged; where that leads
 * elsewhere they stay. */
static void close_directly(pfx_solver *s)
{
    trajectory *const kept = &s->direct.tried[0];
    const double J = s->J;
    memcpy(kept->x, s->x, sizeof s->x);
    memcpy(kept->u, s->u, sizeof s->u);
    follow_dynamics(s);
    if (!(is_finite(s->x[0], (STEPS + 1) * (long)NX)
          && fabs(cost_with_penalties(s, s->x, s->u) - J) <= ELSEWHERE * fabs(J))) {
        memcpy(s->x, kept->x, sizeof s->x);
        memcpy(s->u, kept->u, sizeof s->u);
    }
    s->J = J;
}
#endif

static int solve_own(pfx_solver *s, long most)
{
    direct_loop *const o = &s->direct;
    int status = RUNNING;
    s->most = most;
    s->deadline = INFINITY;
    forget(s);
#if CONSTRAINTS
    forget_multipliers(s);
#endif
    if (!begin_directly(s)) return PFX_DIVERGED;
#if CONSTRAINTS
    begin_outer(s);
#endif
    while (status == RUNNING) {
#if CONSTRAINTS
        const int ended = descend_directly(s, s->outer.tolerance, most);
        close_directly(s);
        status = after_descent(s, ended);
        if (status == RUNNING) {
            o->mu = 0.0;
            measure_all(s);
        }
#else
        status = descend_directly(s, TOLERANCE, most);
#endif
    }
    follow_dynamics(s);
    if (o->began == 0.0
        && !(cost_with_penalties(s, s->x, s->u) <= cost_with_penalties(s, o->first.x, o->first.u))) {
        memcpy(s->x, o->first.x, sizeof s->x); /* broken off while defects were open */
        memcpy(s->u, o->first.u, sizeof s->u);
        follow_dynamics(s);
    }
    return is_finite(s->x[0], (STEPS + 1) * (long)NX) ? status : PFX_DIVERGED;
}
